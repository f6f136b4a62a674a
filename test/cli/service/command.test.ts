import { HastyClock } from '../../support/fake-clock.ts';
import { FakeExec, type Reaction } from '../../support/fake-exec.ts';
import { shortDir } from '../../support/short-dir.ts';
import { readFile, stat } from 'node:fs/promises';
import { join, win32 } from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import t, { type Test } from 'tap';
import { readFlags, splitLine } from '../../../src/cli/flags/read.ts';
import { parse } from '../../../src/cli/parse.ts';
import { findNssm, ownProgram, runService } from '../../../src/cli/service/command.ts';
import { SERVICE_FLAGS, VERBS } from '../../../src/cli/service/spec.ts';
import type { Command } from '../../../src/portal/exec.ts';

const OWN = { program: String.raw`C:\k p\kpng.exe`, args: [], directory: String.raw`C:\k p` };

interface FakeService {
  state: string;
  readonly settings: Map<string, readonly string[]>;
}

/** NSSM and the services of a Windows, as far as our commands go. It prints in UTF-16, as the real one. */
class FakeNssm extends FakeExec {
  readonly services = new Map<string, FakeService>();
  /** The states that a service passes through when it is stopped or started; the last one stays. */
  stops = ['SERVICE_STOP_PENDING', 'SERVICE_STOPPED'];
  starts = ['SERVICE_START_PENDING', 'SERVICE_RUNNING'];
  /** Whether NSSM stops waiting, and says so with its exit code. */
  givesUp = false;
  #coming: string[] = [];

  protected override react({ file, args }: Command): Reaction {
    if (!/nssm(?:\.exe)?$/.test(file)) return { fails: 'missing' };
    const [verb = '', name = '', setting = '', ...values] = args;
    if (verb === 'install') {
      this.services.set(name, { state: 'SERVICE_STOPPED', settings: new Map() });
    }
    const service = this.services.get(name);
    if (service === undefined) return fails(3, `Can't open service!`);
    if (verb === 'status') {
      service.state = this.#coming.shift() ?? service.state;
      return said(service.state);
    }
    if (verb === 'get') return said((service.settings.get(setting) ?? []).join('\n'));
    if (verb === 'set') service.settings.set(setting, values);
    if (verb === 'reset') service.settings.delete(setting);
    if (verb === 'remove') this.services.delete(name);
    if (verb === 'start' || verb === 'stop') {
      this.#coming = [...(verb === 'start' ? this.starts : this.stops)];
      if (this.givesUp) return fails(1, 'Unexpected status SERVICE_PAUSED');
    }
    return said('OK');
  }
}

function said(text: string): Reaction {
  return { stdout: wide(`${text}\r\n`) };
}

function fails(exitCode: number, text: string): Reaction {
  return { fails: 'exit', exitCode, stderr: wide(`${text}\r\n`) };
}

function wide(text: string): string {
  return text.replaceAll(/./gsu, '$&\0');
}

/** A Windows with NSSM and a folder for data of programs. `service` takes a command line, in words or with blanks. */
function windows(t: Test) {
  const data = shortDir(t);
  const fake = new FakeNssm();
  const clock = new HastyClock();
  const service = async (
    line: string | readonly string[],
    platform: NodeJS.Platform = 'win32',
  ): Promise<{ code?: number; stdout?: string; error?: unknown }> => {
    const stdout = new PassThrough();
    const env = { ProgramData: data };
    const host = { stdout, env, platform, exec: fake.exec, clock, own: OWN };
    const argv = typeof line === 'string' ? line.split(' ') : line;
    const { words, rest, flags } = splitLine(argv, SERVICE_FLAGS);
    const verb = VERBS.find((each) => each === words[0]) ?? 'status';
    const { values } = readFlags(flags, SERVICE_FLAGS);
    try {
      const code = await runService(verb, values, rest, host);
      return { code, stdout: await text(stdout.end()) };
    } catch (error) {
      return { error };
    }
  };
  const ran = (verbs: RegExp): string[] =>
    fake.lines.map((line) => line.replace(/^nssm /, '')).filter((line) => verbs.test(line));
  return { fake, data, clock, service, ran };
}

const failed = (message: RegExp | string) => ({ error: { code: 'KPNG_WRAPPER_FAILED', message } });

t.test('the life of a service', async (t) => {
  const { data, service, ran } = windows(t);
  const install = 'install --name a -- local to-winuserspace';
  t.match(await service(install), { code: 0, stdout: /a is installed and stopped\.\n/ });
  t.ok((await stat(join(data, 'kpng-userspace', 'logs'))).isDirectory());
  t.match(await service('status --name a'), { code: 1, stdout: 'stopped\n' });
  for (let times = 0; times < 2; times += 1) {
    t.match(await service('start --name a'), { code: 0, stdout: /is running/ });
  }
  t.match(await service('status --name a'), { code: 0, stdout: 'running\n' });
  const changed = /is changed and running; changes take effect/;
  t.match(await service(install), { code: 0, stdout: changed });
  for (let times = 0; times < 2; times += 1) {
    t.match(await service('stop --name a'), { code: 0, stdout: /has stopped/ });
  }
  await service('start --name a');
  t.match(await service('uninstall --name a'), { code: 0, stdout: /is removed/ });
  const steps = ['start a', 'stop a', 'start a', 'stop a', 'remove a confirm'];
  t.same(ran(/^(?:start|stop|remove) /), steps, 'stopped before it is removed');
  t.match(await service('uninstall --name a'), { code: 0, stdout: /There is no service/ });
  t.match(await service('status --name a'), { code: 1, stdout: 'absent\n' });
  for (const verb of ['start', 'stop']) {
    t.match(await service(`${verb} --name a`), failed('there is no service a'));
  }
});

t.test('what NSSM is given, word for word; settings no longer needed are reset', async (t) => {
  const { fake, data, service } = windows(t);
  const line = ['--', 'kube', '--kubeconfig', String.raw`C:\Program Files\config`];
  const flags = ['--env', 'D=say "hi"', ...'--depends-on kpng --log-size=64Ki'.split(' ')];
  const names = ['--name=a', '--display-name=The proxy', '--env', 'A=b,c'];
  await service(['install', ...names, ...flags, ...line]);
  const log = win32.join(data, 'kpng-userspace', 'logs', 'a.log');
  const parameters = String.raw`kube --kubeconfig "C:\Program Files\config"`;
  const settings = [
    ['AppParameters', parameters],
    ['AppDirectory', OWN.directory],
    ['DisplayName', 'The proxy'],
    ['Description', `Userspace proxy for Kubernetes Services: ${line.slice(1).join(' ')}`],
    ['Start', 'SERVICE_DELAYED_AUTO_START'],
    ['AppStdout', log],
    ['AppStderr', log],
    ['AppRotateFiles', '1'],
    ['AppRotateOnline', '1'],
    ['AppRotateBytes', '65536'],
    ['AppEnvironmentExtra', 'A=b,c', 'D=say "hi"'],
    ['DependOnService', 'kpng'],
    ['AppStopMethodSkip', '6'],
    ['AppStopMethodConsole', '15000'],
    ['AppRestartDelay', '2000'],
    ['AppExit', 'Default', 'Restart'],
    ['AppExit', '0', 'Exit'],
    ['AppExit', '2', 'Exit'],
  ].map((setting) => ['set', 'a'].concat(setting));
  const given = () => fake.commands.splice(0).map(({ args }) => args);
  const status = ['status', 'a'];
  t.same(given(), [status, ['install', 'a', OWN.program], ...settings, status]);
  await service(['install', '--name=a', ...line]);
  const again = given();
  t.same(again[1], ['set', 'a', 'Application', OWN.program]);
  t.same(
    again.filter(([verb]) => verb === 'reset'),
    ['AppEnvironmentExtra', 'DependOnService'].map((setting) => ['reset', 'a', setting]),
  );
});

t.test('start and stop end when Windows reports it, whatever NSSM prints', async (t) => {
  const { fake, clock, service } = windows(t);
  await service('install --stop-timeout 60s -- kube to-api');
  fake.starts = ['SERVICE_START_PENDING', 'SERVICE_PAUSED'];
  t.match(await service('start'), failed(/does not run, it is pausing; see its log/));
  t.ok(clock.passed < 5000, 'without waiting to the end');
  t.match(await service('stop'), { code: 0 });
  fake.givesUp = true;
  const said = /NSSM says "Unexpected status SERVICE_PAUSED"; .*it is pausing; see its log/;
  t.match(await service('start'), failed(said));
  fake.starts = ['SERVICE_RUNNING'];
  t.match(await service('start'), { code: 0 });
  fake.stops = Array.from({ length: 40 }, () => 'SERVICE_STOP_PENDING').concat('SERVICE_STOPPED');
  t.match(await service('stop'), { code: 0 });
  await service('start');
  fake.stops = ['SERVICE_STOP_PENDING'];
  const before = clock.passed;
  t.match(await service('stop'), failed(/has not stopped, it is changing/));
  const waited = clock.passed - before;
  t.ok(waited >= 60_000 && waited < 120_000, 'as long as the program may drain');
});

t.test('a command line that could not run is not installed', async (t) => {
  const { service } = windows(t);
  const cases: [string, RegExp][] = [
    ['', /expected one of install, uninstall, start, stop, status/],
    ['restart', /expected one of/],
    ['install', /write the command line of the service after "--"/],
    ['install kube to-api', /write "--" before/],
    ['install -- kube to-bogus', /unknown backend/],
    ['install -- version', /names no source and backend/],
    ['install --name a/b -- kube to-api', /--name.*letters, digits/],
    ['install --log-size 1 -- kube to-api', /--log-size.*at least 64Ki/],
    ['install --env nonsense -- kube to-api', /--env.*NAME=value/],
    ['start -- kube to-api', /takes no command line/],
    ['status --winsw x', /--winsw is for service install/],
    ['status --bogus', /unknown flag/],
  ];
  for (const [line, message] of cases) {
    const words = line.split(' ').filter((word) => word !== '');
    t.throws(() => parse(['service', ...words]), { code: 'KPNG_USAGE', message }, line);
  }
  t.equal(parse(['service', 'install', '--', 'kube', 'to-api', '-v=2']).kind, 'other');
  t.match(await service('status', 'linux'), { error: { message: /for Windows/ } });
  t.match(
    await service('status --nssm other'),
    failed(/there is no other; get NSSM.*--nssm.*--winsw/),
  );
});

const DEFINITION = [
  '<service>',
  '  <id>winuserspace</id>',
  '  <name>The &#34;odd&#34; proxy &#38; &#60;more&#62;</name>',
  '  <description>Userspace proxy for Kubernetes Services: --name a&#60;b &#38; &#34;c&#34;</description>',
  String.raw`  <executable>C:\k p\kpng.exe</executable>`,
  String.raw`  <arguments>--name &#34;a&#60;b &#38; \&#34;c\&#34;&#34;</arguments>`,
  String.raw`  <workingdirectory>C:\k p</workingdirectory>`,
  '  <startmode>Automatic</startmode>',
  '  <delayedAutoStart>true</delayedAutoStart>',
  '  <depend>kpng</depend>',
  '  <depend>Tcpip</depend>',
  '  <env name="A" value="b=c"/>',
  '  <env name="SAID" value="&#34;a&#34;&#9;&#60;b&#62;"/>',
  '  <env name="E" value=""/>',
  String.raw`  <logpath>C:\logs</logpath>`,
  '  <log mode="roll-by-size">',
  '    <sizeThreshold>1024</sizeThreshold>',
  '    <keepFiles>8</keepFiles>',
  '  </log>',
  '  <onfailure action="restart" delay="2000 ms"/>',
  '  <onfailure action="restart" delay="10000 ms"/>',
  '  <onfailure action="restart" delay="60000 ms"/>',
  '  <resetfailure>1 hour</resetfailure>',
  '  <stoptimeout>15000 ms</stoptimeout>',
  '</service>',
  '',
].join('\r\n');

t.test('a definition for WinSW is written anywhere, with every value', async (t) => {
  const { data, fake, service } = windows(t);
  const folder = join(data, 'sw');
  const write = async (flags: readonly string[], line = ['--name', 'a<b & "c"']) => {
    const texts = ['--display-name', 'The "odd" proxy & <more>', '--env=SAID="a"\t<b>', '--env=E='];
    const all = ['--name=winuserspace', '--log-dir', String.raw`C:\logs`, '--env=A=b=c', ...texts];
    const words = [...all, '--depends-on=kpng,Tcpip', '--log-size=1Mi', ...flags, '--', ...line];
    const outcome = await service(['install', '--winsw', folder, ...words], 'linux');
    return { ...outcome, xml: await readFile(join(folder, 'winuserspace.xml'), 'utf8') };
  };
  const { code, stdout, xml } = await write([]);
  t.equal(code, 0);
  t.match(stdout, /winuserspace\.xml\. Copy WinSW to .*winuserspace\.exe/);
  t.equal(xml, DEFINITION);
  for (const [flag, expected] of [
    ['--start=auto', /<startmode>Automatic<\/startmode>\r\n {2}<depend>/],
    ['--start=demand', /<startmode>Manual<\/startmode>\r\n {2}<depend>/],
    ['--restart-delay=30s', /(?:delay="30000 ms"[^]*){2}delay="60000 ms"/],
    ['--log-size=1024Gi', /<sizeThreshold>2097151</],
  ] as const) {
    t.match((await write([flag])).xml, expected);
  }
  const message = /WinSW cannot have the character U\+[0-9A-F]{4}/;
  for (const control of ['\u0000', '\u001B', '\uFFFF']) {
    t.match(await write([], [control]), { error: { code: 'KPNG_USAGE', message } });
  }
  t.same(fake.commands, []);
});

t.test('a service starts the same program again', async (t) => {
  t.same(ownProgram('/k/kpng.exe', '/k/kpng.exe', true), {
    program: '/k/kpng.exe',
    args: [],
    directory: '/k',
  });
  t.same(ownProgram('/n/node', '/k/bin/kpng.js', false), {
    program: '/n/node',
    args: ['--disable-sigusr1', '/k/bin/kpng.js'],
    directory: '/n',
  });
  const folder = t.testdir({ 'nssm.exe': '' });
  t.equal(findNssm(folder), join(folder, 'nssm.exe'));
  t.equal(findNssm('/no/such/folder'), 'nssm');
});

t.test('arguments keep their blanks, quotes and backslashes', async (t) => {
  const cases: [string[], string][] = [
    [['kube', 'to-api'], 'kube to-api'],
    [
      ['--kubeconfig', String.raw`C:\Program Files\k\config`],
      String.raw`--kubeconfig "C:\Program Files\k\config"`,
    ],
    [[''], '""'],
    [[String.raw`C:\a b` + '\\'], String.raw`"C:\a b\\"`],
    [['say "hi"', 'a\tb', String.raw`a\b`], String.raw`"say \"hi\"" "a	b" a\b`],
    [[String.raw`\"`, String.raw`a\\"b c\d`], String.raw`"\\\"" "a\\\\\"b c\d"`],
    [['%PATH%', 'a&b|c>d'], '%PATH% a&b|c>d'],
  ];
  const { fake, service } = windows(t);
  for (const [args, line] of cases) {
    await service(['install', '--name=a', '--', ...args]);
    t.same(fake.services.get('a')?.settings.get('AppParameters'), [line]);
  }
});
