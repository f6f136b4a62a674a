import { captureLog } from '../support/captured-log.ts';
import { runHere, startCli } from '../support/cli.ts';
import { given, refused, run } from '../support/command-lines.ts';
import { shortDir } from '../support/short-dir.ts';
import { freePort } from '../support/sockets.ts';
import { connectionEnd, endOf, tcpClient } from '../support/tcp-peers.ts';
import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import type { Test } from 'tap';
import { adopt, configz } from '../../src/cli/live-settings.ts';
import { configPathOf, configurableFlags } from '../../src/cli/parse.ts';
import { CONFIG_LIMITS } from '../../src/config/fields.ts';
import { type ConfigFile, parseConfig, resolveConfig } from '../../src/config/file.ts';
import type { LimitChange } from '../../src/proxysocket/limits.ts';

/** Where settings come from, and what becomes of the file while the program runs. */

const HEAD = 'apiVersion: kpng-userspace/v1alpha1\nkind: UserspaceProxyConfiguration\n';

const FIELDS = configurableFlags();

function file(text: string): ConfigFile {
  return parseConfig('c.yaml', HEAD + text, FIELDS);
}

t.test('flags override the environment, which overrides the file', async (t) => {
  const flag = '--max-connections=3';
  const env = { KPNG_MAX_CONNECTIONS: '2' };
  const config = file('maxConnections: 1\n');
  const cases: [string, Record<string, string>, ConfigFile | undefined, string, number][] = [
    [flag, env, config, 'flag', 3],
    [flag, {}, config, 'flag', 3],
    ['', env, config, 'environment KPNG_MAX_CONNECTIONS', 2],
    ['', {}, config, 'c.yaml:3 (maxConnections)', 1],
    ['', {}, undefined, 'default', 100_000],
  ];
  for (const [flags, variables, settingsFile, origin, value] of cases) {
    const { settings, sink } = run(`local to-userspace ${flags}`, variables, settingsFile);
    const setting = settings.find((each) => each.flag === 'max-connections');
    t.match(setting, { value, origin: { text: origin } });
    t.match(sink.options, { limits: { maxConnections: value } });
  }
});

t.test('every flag has an environment variable, of one rule', async (t) => {
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
});

t.test('the file may name the command, and the command line overrides it', async (t) => {
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
});

t.test('passwords in URLs are not shown', async (t) => {
  const { settings } = run('kube to-json --server https://me:secret@10.0.0.1:6443');
  const server = settings.find(({ flag }) => flag === 'server');
  t.equal(server?.text, 'https://me:***@10.0.0.1:6443');
  t.notMatch(JSON.stringify(settings), /secret/);
});

t.test('applies live settings, reports the others, and knows which are in force', async (t) => {
  const { log } = await captureLog();
  const before = run('local to-userspace --drain-delay 9s', {}, file('v: 1\nmaxConnections: 5\n'));
  const changes: LimitChange[] = [];
  const live = { ...before, globals: { ...before.globals } };
  const setLimits = (change: LimitChange) => void changes.push(change);
  const next = file('v: 3\nmaxConnections: 6\nbacklog: 9\ndrainTimeout: 1s\ndrainDelay: 1s\n');
  const adopted = adopt(live, run('local to-userspace --drain-delay 9s', {}, next), log, setLimits);
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
  t.equal(shown.get('drain-delay')?.origin.text, 'flag');
  // Fields that vanish go back to their defaults.
  const less = run('local to-json --drain-delay 9s', {}, file('maxConnections: 5\n'));
  const gone = adopt(live, less, log, setLimits);
  t.same(
    gone.changed.map(({ field, to }) => [field, to]),
    [
      ['v', '0'],
      ['drainTimeout', '5s'],
    ],
  );
  t.match(gone.refused, [{ field: 'command', from: 'local to-userspace', to: 'local to-json' }]);
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
  write(`#${'x'.repeat(CONFIG_LIMITS.maxFileBytes)}`);
  for (const unreadable of [path, `${path}.not`]) {
    const outcome = await runHere('config', 'validate', unreadable);
    t.match(outcome, { code: 2, stderr: /KPNG_CONFIG_READ/ });
  }
});

t.test('a running program follows the file and HUP', async (t) => {
  const { path, state, write: writeAll } = configFile(t);
  const port = await freePort();
  const write = (more = ''): void =>
    writeAll(`command: file to-local to-userspace\ninput: ${state}\nportal: address\n${more}`);
  const service = `{ name: web, ips: { externalips: { v4: [127.0.0.1] } }, ports: [{ port: ${port} }] }`;
  writeFileSync(state, `services: [{ service: ${service} }]\n`);
  write();
  const cli = startCli(t, ['--config', path, '--metrics-bind-address=127.0.0.1:0']);
  await cli.line('The first complete state is in place');
  const { url } = await cli.line('Serving metrics');
  const page = await (await fetch(`${String(url)}/configz`)).json();
  t.match(page, { 'kpng-userspace': { command: 'file to-userspace', drainTimeout: '5s' } });
  t.equal(await (await fetch(`${String(url)}/proxyMode`)).text(), 'userspace');
  t.equal(await connectionEnd(t, port), 'ECONNRESET');
  write('holdTimeout: 1h\nbacklog: 9\n');
  const changed = await cli.line('Setting changed');
  t.match(changed, { field: 'holdTimeout', flag: '--hold-timeout', from: '0s', to: '1h' });
  const refusal = 'Setting changed; takes effect after a restart';
  t.match(await cli.line(refusal), { field: 'backlog', to: '9', code: 'KPNG_CONFIG_NOT_LIVE' });
  const client = await tcpClient(t, port);
  await cli.line('Holding client until the service has an endpoint');
  const invalid = 'Configuration invalid; keeping the previous settings';
  write('vv: 1\n');
  const bad = await cli.line(invalid);
  t.match(bad, { err: /vv: unknown field/, code: 'KPNG_CONFIG_INVALID' });
  writeFileSync(path, Buffer.from('# \xe4', 'latin1'), { flag: 'a' });
  await cli.line(invalid, { code: 'KPNG_CONFIG_READ' });
  write();
  await cli.line('Setting changed', { field: 'holdTimeout', to: '0s' });
  t.equal(await connectionEnd(t, port), 'ECONNRESET');
  await cli.line('Configuration reloaded', { changed: 1, refused: 0 });
  const count = cli.log.length;
  cli.kill('SIGHUP');
  await cli.until(() => cli.log.length > count, 'an answer to HUP');
  t.match(cli.log.at(-1), { msg: 'Configuration reloaded', changed: 0, refused: 0 });
  t.notOk(
    cli.log.some(({ code }) => code === 'KPNG_NODE_UNKNOWN'),
    'the source has no nodes',
  );
  const end = endOf(client);
  cli.kill('SIGTERM');
  t.equal(await end, 'ECONNRESET', 'a client that is held does not keep the program from ending');
  t.match(await cli.exited, { code: 0 });
});

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
    t.same(
      configz(run('', {}, resolved.config), 4)['kubeproxy.config.k8s.io'],
      told['kubeproxy.config.k8s.io'],
    );
  }
});

t.test('a misspelled variable is reported with the likely flag, others are not', async (t) => {
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
  t.same(given(run('local to-json', links)), []);
});

/** `validate`, and what the program says of files and nodes that do not fit. */

const folder = shortDir(t);

function written(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

const GOOD = `nodes: [{name: node-a}, {name: node-b}]
services:
- service: {name: web, ports: [{port: 80}]}
  endpoints: [{servicename: other, endpoint: {ips: {v4: [10.0.0.1]}}}]
`;
const good = written('good.yaml', GOOD);

t.test('a valid file, with its warnings', async (t) => {
  const { code, stdout, stderr } = await runHere('validate', good, '--node-name', 'node-b');
  t.equal(code, 0);
  t.equal(stdout, `${good} is valid: 1 service, 2 nodes\n`);
  t.match(stderr, /^kpng-userspace: warning: .*good\.yaml:4:\d+: .*'other' is ignored/);
});

t.test('every error, with line and column', async (t) => {
  const wrong = written('wrong.yaml', GOOD.replace('port: 80', 'prot: 80').replace('v4', 'v5'));
  const { code, stdout, stderr } = await runHere('validate', wrong);
  t.equal(code, 2);
  t.equal(stdout, '');
  t.match(stderr, /wrong\.yaml:3:\d+: services\[0\]\.service\.ports\[0\].*did you mean 'port'\?/);
  t.match(stderr, /wrong\.yaml:4:\d+: services\[0\]\.endpoints\[0\]/);
  t.equal(stderr.match(/\(KPNG_STATE_FILE_INVALID\)$/gm)?.length, 3);
  t.match(await runHere('validate', join(folder, 'none.yaml')), {
    code: 2,
    stderr: /cannot read the state file .*none\.yaml: there is no such file.*KPNG_STATE_FILE_READ/,
  });
  const oneLine = await runHere('validate', join(folder, 'no\nfile'));
  t.match(oneLine.stderr, /no\\u000afile: there is no such file .*\n$/);
  t.match(await runHere('validate'), { code: 2, stderr: /name the file: validate STATE_FILE/ });
});

t.test('a Kubernetes manifest: what it is, where that shows, and what to do', async (t) => {
  const service = 'apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: []}\n';
  const path = written('service.yaml', service);
  const { code, stderr } = await runHere('validate', path);
  t.equal(code, 2);
  t.equal(stderr.split('\n').length, 2, 'one line');
  t.match(
    stderr,
    /service\.yaml:2:1: kind: this is a Kubernetes manifest \(kind: "Service"\), not a state file.*; apply it to a cluster and use the source kube, or .*kube to-file/,
  );
  const several = await runHere('validate', written('all.yaml', `${service}---\n${service}`));
  t.match(several.stderr, /all\.yaml:1:1: this is a Kubernetes manifest/);
  t.match((await runHere('validate', written('config.yaml', HEAD))).stderr, /give it to --config/);
  t.match(await runHere('config', 'validate', join(folder, 'config.yaml')), { code: 0 });

  const cli = startCli(t, ['file', '-i', path, 'to-json', '--node-name', 'n']);
  await cli.line('State file invalid; nothing is served yet', { line: 2, at: 'kind' });
  t.equal(cli.log.filter(({ level }) => level === 'error').length, 1);
});

t.test('a node that the file does not have: the log lists those that it has, once', async (t) => {
  t.match(await runHere('validate', good, '--node-name', 'node-c'), {
    code: 2,
    stderr:
      /--node-name "node-c": the state file .*good\.yaml has no such node; it has "node-a", "node-b" \(KPNG_NODE_UNKNOWN\)/,
  });
  const nodes = Array.from({ length: 30 }, (_, n) => `{name: node-${10 + n}}`);
  const many = written('many.yaml', `nodes: [${nodes.join(', ')}]\nservices: []\n`);
  const cli = startCli(t, ['file', '-i', many, 'to-json', '--node-name', 'nowhere']);
  const line = await cli.line('Unknown node: no endpoint counts as local; set --node-name');
  t.match(line, {
    level: 'warn',
    code: 'KPNG_NODE_UNKNOWN',
    err: /--node-name "nowhere": the state file .* it has "node-10", .*"node-19" and 20 more$/,
  });
  await cli.line('The first complete state is in place');
  writeFileSync(many, `nodes: [${nodes.slice(1).join(', ')}]\nservices: [{service: {name: a}}]\n`);
  await cli.until(() => cli.stdout.includes('"a"'), 'the new state');
  t.equal(cli.log.filter(({ code }) => code === 'KPNG_NODE_UNKNOWN').length, 1);
});

t.test('what a file has never controls the terminal', async (t) => {
  const key = String.raw`"\e[2J\u202e"`;
  const state = written('controls.yaml', `services:\n- ${key}: 1\n`);
  const settings = written('controls.config.yaml', `${HEAD}${key}: 1\n`);
  for (const line of [
    ['validate', state],
    ['config', 'validate', settings],
  ]) {
    const { code, stderr } = await runHere(...line);
    t.equal(code, 2, line.join(' '));
    t.match(stderr, String.raw`\u001b[2J\u202e`);
    t.notMatch(stderr, /[^\P{Cc}\n]|\p{Cf}/u);
  }
});
