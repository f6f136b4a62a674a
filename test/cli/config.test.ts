/** Where settings come from, and what becomes of the file while the program runs. */
import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as fc from 'fast-check';
import t, { type Test } from 'tap';
import { parseConfig } from '../../src/cli/config-file.ts';
import { configz, LiveSettings } from '../../src/cli/live-settings.ts';
import { GLOBAL_FLAGS } from '../../src/cli/flags/global.ts';
import { configPathOf, configurableFlags, parse } from '../../src/cli/parse.ts';
import { originText } from '../../src/cli/flags/table.ts';
import { type ConfigFile, resolveConfig } from '../../src/config/resolve.ts';
import { LIMIT_NAMES, LIVE_LIMITS, type LimitChange } from '../../src/proxysocket/limits.ts';
import { captureLog } from '../support/captured-log.ts';
import { runHere, startCli } from '../support/cli.ts';
import { refused, run } from '../support/command-lines.ts';
import { holds } from '../support/property.ts';
import { shortDir } from '../support/short-dir.ts';
import { freePort } from '../support/sockets.ts';
import { connectionEnd, endOf, tcpClient } from '../support/tcp-peers.ts';

const HEAD = 'apiVersion: kpng-userspace/v1alpha1\nkind: UserspaceProxyConfiguration\n';

function file(text: string): ConfigFile {
  return parseConfig('c.yaml', HEAD + text);
}

t.test('flags override the environment, which overrides the file', (t) => {
  const place = fc.constantFrom('flag', 'env', 'file');
  holds(
    t,
    fc.property(fc.uniqueArray(place), fc.integer({ min: 1, max: 99 }), (places, base) => {
      const value = (where: string): number => base + ['file', 'env', 'flag'].indexOf(where);
      const flag = places.includes('flag') ? ` --max-connections=${value('flag')}` : '';
      const env: Record<string, string> = places.includes('env')
        ? { KPNG_MAX_CONNECTIONS: String(value('env')) }
        : {};
      const config = places.includes('file')
        ? file(`maxConnections: ${value('file')}\n`)
        : undefined;
      const { settings, given, sink } = run(`local to-userspace${flag}`, env, config);
      const setting = settings.find((each) => each.flag === 'max-connections');
      const winner = ['flag', 'env', 'file'].find((each) => places.some((one) => one === each));
      const wanted = winner === undefined ? 100_000 : value(winner);
      const { limits } = sink.options as { limits: { maxConnections: number } };
      return (
        setting?.origin.kind === (winner ?? 'default') &&
        setting.value === wanted &&
        limits.maxConnections === wanted &&
        given.has('max-connections') === (winner !== undefined)
      );
    }),
  );
  t.end();
});

t.test('every flag has an environment variable, of one rule', (t) => {
  t.equal(run('local to-json', { KPNG_V: '3' }).globals.v, 3);
  const both = { KPNG_KUBECONFIG: '/ours', KUBECONFIG: '/theirs' };
  t.match(run('kube to-json', both).source.options, { kubeconfig: '/ours' });
  t.match(run('kube to-json', { KUBECONFIG: '/theirs' }).source.options, { kubeconfig: '/theirs' });
  t.match(refused('local to-json', { KPNG_V: 'x' }), /^KPNG_V \(for --v\) "x": expected a whole/);
  t.equal(configPathOf(['--config=a', 'file', '--config', 'b'], { KPNG_CONFIG: 'c' }), 'b');
  t.equal(configPathOf(['file', 'to-json'], { KPNG_CONFIG: 'c' }), 'c');
  t.equal(configPathOf(['file', 'to-json', '--help'], { KPNG_CONFIG: 'c' }), '');
  t.equal(configPathOf(['file'], {}), '');
  for (const words of [['version'], ['help', 'kube'], ['config', 'validate', 'x']]) {
    t.equal(configPathOf(words, { KPNG_CONFIG: 'c' }), '', words.join(' '));
  }
  t.end();
});

t.test('the file may name the command, and the command line overrides it', (t) => {
  const config = file('command: file to-json\ninput: s.yaml\nportal: none\n');
  t.same(run('', {}, config).command, ['file', 'to-json']);
  t.match(run('', {}, config).source.options, { input: 's.yaml' });
  t.same(run('local to-userspace', {}, config).command, ['local', 'to-userspace']);
  t.same(
    run('', {}, config).warnings.map(({ field, message }) => `${field}: ${message}`),
    ['portal: has no effect on file to-json'],
  );
  t.match(refused('--v=1', {}, file('command: file\n')), /file, is not complete/);
  t.match(refused('--v=1', {}, file('command: files to-json\n')), /unknown command "files"/);
  t.match(refused('--v=1', {}, file('v: 1\n')), /no source was named/);
  t.end();
});

t.test('passwords in URLs are not shown', (t) => {
  const { settings } = run('kube to-json --server https://me:secret@10.0.0.1:6443');
  const server = settings.find(({ flag }) => flag === 'server');
  t.equal(server?.text, 'https://me:***@10.0.0.1:6443');
  t.notMatch(JSON.stringify(settings), /secret/);
  t.end();
});

t.test('applies live settings, reports the others, and knows which are in force', async (t) => {
  const { log } = await captureLog();
  const before = run('local to-userspace --drain-delay 9s', {}, file('v: 1\nmaxConnections: 5\n'));
  const changes: LimitChange[] = [];
  const live = new LiveSettings(before, log, (change) => void changes.push(change));
  const next = file('v: 3\nmaxConnections: 6\nbacklog: 9\ndrainTimeout: 1s\ndrainDelay: 1s\n');
  const adopted = live.adopt(run('local to-userspace --drain-delay 9s', {}, next));
  t.same(adopted.changed, [
    { flag: 'v', field: 'v', from: '1', to: '3' },
    { flag: 'drain-timeout', field: 'drainTimeout', from: '5s', to: '1s' },
    { flag: 'max-connections', field: 'maxConnections', from: '5', to: '6' },
  ]);
  t.same(adopted.refused, [{ flag: 'backlog', field: 'backlog', from: '4096', to: '9' }]);
  t.same(changes, [{ maxConnections: 6 }]);
  t.equal(log.verbosity, 3);
  t.match(live.globals, { v: 3, drainTimeout: 1000, drainDelay: 9000 });
  t.match(before.globals, { v: 1 });
  const shown = new Map(live.settings.map((each) => [each.flag, each]));
  t.match(shown.get('v'), { text: '3' });
  t.match(shown.get('backlog'), { text: '4096' }, 'what is in force, not what is asked for');
  t.equal(originText(shown.get('drain-delay')?.origin ?? { kind: 'default' }), 'flag');
  // Fields that vanish go back to their defaults.
  const gone = live.adopt(run('local to-json --drain-delay 9s', {}, file('maxConnections: 5\n')));
  t.same(
    gone.changed.map(({ field, to }) => [field, to]),
    [
      ['v', '0'],
      ['drainTimeout', '5s'],
    ],
  );
  t.match(gone.refused, [{ field: 'command', from: 'local to-userspace', to: 'local to-json' }]);
});

t.test('only flags of all commands and limits of the data path are live', async (t) => {
  const live = [...configurableFlags()].filter(([, { live }]) => live === true);
  const limits: readonly string[] = LIVE_LIMITS.map((limit) => LIMIT_NAMES[limit]);
  t.ok(live.length > limits.length);
  for (const [flag] of live) t.ok(flag in GLOBAL_FLAGS || limits.includes(flag), flag);
});

/** A configuration file, and what replaces it at once. */
function configFile(t: Test) {
  const dir = shortDir(t);
  const [path, state] = [join(dir, 'c.yaml'), join(dir, 's.yaml')];
  const write = (text: string): void => {
    writeFileSync(`${path}.new`, HEAD + text);
    renameSync(`${path}.new`, path);
  };
  return { path, state, write };
}

t.test('config validate and config print, as commands', async (t) => {
  const { path, write } = configFile(t);
  write(`command: file to-json\nv: 2\nportRange: 1-2\n`);
  const valid = await runHere('config', 'validate', path);
  t.match(valid, { code: 0, stdout: `${path} is valid.\n` });
  t.match(valid.stderr, /c.yaml:5:1: portRange: has no effect on file to-json/);

  const table = await runHere('config', 'print', '--config', path, '--node-name=n');
  t.equal(table.code, 0);
  t.match(table.stdout, /^SETTING +VALUE +FROM\n--v +2 +\S+c.yaml:4 \(v\)\n/);
  t.match(table.stdout, /\n--node-name +n +flag\n/);
  const json = await runHere('config', 'print', 'file', 'to-json', '--output', 'json', '-v=1');
  const printed = JSON.parse(json.stdout) as { command: string; settings: object[] };
  t.equal(printed.command, 'file to-json');
  t.match(printed.settings[0], { flag: 'v', field: 'v', value: 1, from: 'flag', live: true });
  const format = printed.settings.find((each) => 'flag' in each && each.flag === 'logging-format');
  t.strictSame(format && 'value' in format && format.value, null, 'not set, and no default');

  const line = ['config', 'print', '--config', path, '--node-name=n', '--output=yaml'];
  const yaml = await runHere(...line);
  const copy = join(path, '..', 'copy.yaml');
  writeFileSync(copy, yaml.stdout);
  const again = await runHere('config', 'print', '--config', copy, '--output=yaml');
  const plain = (text: string): string => text.replaceAll(/ # .*/g, '');
  t.equal(plain(again.stdout), plain(yaml.stdout), 'what is printed is a file that sets the same');

  write(`command: local to-userspace\nportal: nftables\nportalInterface: a\n`);
  t.match(await runHere('config', 'validate', path), {
    code: 2,
    stderr: /--portal-interface goes/,
  });
  write(`vv: 2\nq: 1\nnodeName: a b\n`);
  const invalid = await runHere('config', 'validate', path);
  t.match(invalid, { code: 2, stdout: '', stderr: /:3:1: vv: unknown field.*\n.*:4:1: q/ });
  t.match(invalid.stderr, /:5:1: nodeName: "a b": not the name of a node \(KPNG_CONFIG_INVALID\)/);
  t.match(await runHere('file', 'to-json', '--config', path), {
    code: 2,
    stderr: /KPNG_CONFIG_INVALID/,
  });
  t.match(await runHere('config', 'validate', `${path}.not`), {
    code: 2,
    stderr: /KPNG_CONFIG_READ/,
  });
});

t.test('a running program begins and ends to hold clients as the file says', async (t) => {
  const { path, state, write: writeAll } = configFile(t);
  const port = await freePort();
  const write = (text: string): void =>
    writeAll(`command: file to-local to-userspace\ninput: ${state}\n${text}`);
  const service = `{ name: web, ips: { externalips: { v4: [127.0.0.1] } }, ports: [{ port: ${port} }] }`;
  writeFileSync(state, `services: [{ service: ${service} }]\n`);
  write('portal: address\n');
  const cli = startCli(t, ['--config', path]);
  await cli.line('The first complete state is in place');
  t.equal(await connectionEnd(t, port), 'ECONNRESET');
  write('portal: address\nholdTimeout: 1h\n');
  t.match(await cli.line('Setting changed'), { field: 'holdTimeout', from: '0s', to: '1h' });
  const client = await tcpClient(t, port);
  await cli.line('Holding client until the service has an endpoint');
  write('portal: address\n');
  await cli.line('Setting changed', { field: 'holdTimeout', to: '0s' });
  t.equal(await connectionEnd(t, port), 'ECONNRESET');
  const end = endOf(client);
  cli.kill('SIGTERM');
  t.equal(await end, 'ECONNRESET', 'a client that is held does not keep the program from ending');
  t.match(await cli.exited, { code: 0 });
});

t.test('a running program follows the file and HUP', async (t) => {
  const { path, state, write } = configFile(t);
  writeFileSync(state, 'nodes: []\nservices: []\n');
  write(`command: file to-json\ninput: ${state}\n`);
  const cli = startCli(t, ['--config', path, '--metrics-bind-address=127.0.0.1:0']);
  await cli.line('The first complete state is in place');
  const { url } = await cli.line('Serving metrics');
  const page = await (await fetch(`${String(url)}/configz`)).json();
  t.match(page, { 'kpng-userspace': { command: 'file to-json', drainTimeout: '5s' } });
  t.equal(await (await fetch(`${String(url)}/proxyMode`)).text(), 'userspace');
  write(`command: file to-json\ninput: other\nv: 2\n`);
  t.match(await cli.line('Setting changed'), { field: 'v', flag: '--v', from: '0', to: '2' });
  const refusal = 'Setting changed; takes effect after a restart';
  t.match(await cli.line(refusal), { field: 'input', to: 'other', code: 'KPNG_CONFIG_NOT_LIVE' });
  write('vv: 1\n');
  const bad = await cli.line('Configuration invalid; keeping the previous settings');
  t.match(bad, { err: /vv: unknown field/, code: 'KPNG_CONFIG_INVALID' });
  write(`command: file to-json\ninput: ${state}\nv: 2\n`);
  await cli.line('Configuration reloaded', { changed: 0, refused: 0 });
  const count = cli.log.length;
  cli.kill('SIGHUP');
  await cli.until(() => cli.log.length > count, 'an answer to HUP');
  t.match(cli.log.at(-1), { msg: 'Configuration reloaded', changed: 0, refused: 0 });
  t.notOk(
    cli.log.some(({ code }) => code === 'KPNG_NODE_UNKNOWN'),
    'the source has no nodes',
  );
  cli.kill('SIGTERM');
  t.match(await cli.exited, { code: 0 });
});

const FIELDS = configurableFlags();

t.test('both documents are valid files, and set what is in force', async (t) => {
  const line =
    'kube to-userspace --v=3 --port-range=1-2 --kubeconfig=/k --nodeport-addresses=primary';
  const invocation = run(line.replace('to-user', 'to-local to-user'));
  // Current verbosity, however it was changed.
  const told = configz(invocation, 4);
  t.match(told['kubeproxy.config.k8s.io'], {
    mode: 'userspace',
    bindAddress: '0.0.0.0',
    clientConnection: { kubeconfig: '/k' },
    healthzBindAddress: '0.0.0.0:10256',
    logging: { verbosity: 4, format: null },
    metricsBindAddress: '127.0.0.1:10249',
    nodePortAddresses: ['primary'],
    portRange: '1-2',
    udpIdleTimeout: '30s',
  });
  t.match(told['kpng-userspace'], {
    command: 'kube to-userspace',
    maxConnections: 100_000,
    v: 4,
    cleanupOnExit: false,
  });
  for (const document of Object.values(told)) {
    const resolved = resolveConfig('configz', JSON.stringify(document), FIELDS);
    t.match(resolved, { ok: true, config: { warnings: [] } });
    if (!resolved.ok) continue;
    const again = parse([], {}, resolved.config);
    if (again.kind !== 'run') throw new Error(again.kind);
    t.same(configz(again, 4)['kubeproxy.config.k8s.io'], told['kubeproxy.config.k8s.io']);
  }
});

t.test('a misspelled variable is reported with the likely flag, others are not', (t) => {
  const misspelt = (env: Record<string, string>): unknown =>
    run('file to-local to-userspace', env).misspelt;
  t.same(misspelt({ KPNG_MAX_CONECTIONS: '3' }), [
    { variable: 'KPNG_MAX_CONECTIONS', meant: 'KPNG_MAX_CONNECTIONS' },
  ]);
  t.same(
    misspelt({ KPNG_MAX_CONNECTIONS: '3', KPNG_WITH_SERVICE_LABELS: 'a', KPNG_TEAM: 'harbour' }),
    [],
    'variables of other commands, and unrelated ones',
  );
  const links = {
    KPNG_PORT: 'tcp://10.96.0.9:80',
    KPNG_PORT_80_TCP_ADDR: '10.96.0.9',
    KPNG_SERVICE_HOST: '10.96.0.9',
    KPNG_API_SERVICE_PORT_HTTP: '80',
  };
  t.same(misspelt(links), [], 'what Kubernetes sets for a Service named kpng');
  t.equal(run('local to-json', links).given.size, 0);
  t.end();
});
