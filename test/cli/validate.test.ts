/** `validate`, and what the program says of files and nodes that do not fit. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { runHere, startCli } from '../support/cli.ts';
import { shortDir } from '../support/short-dir.ts';

const folder = shortDir(t);

function file(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

const GOOD = `nodes: [{name: node-a}, {name: node-b}]
services:
- service: {name: web, ports: [{port: 80}]}
  endpoints: [{servicename: other, endpoint: {ips: {v4: [10.0.0.1]}}}]
`;
const good = file('good.yaml', GOOD);

t.test('a valid file, with its warnings', async (t) => {
  const { code, stdout, stderr } = await runHere('validate', good, '--node-name', 'node-b');
  t.equal(code, 0);
  t.equal(stdout, `${good} is valid: 1 service, 2 nodes\n`);
  t.match(stderr, /^kpng-userspace: warning: .*good\.yaml:4:\d+: .*'other' is ignored/);
});

t.test('every error, with line and column', async (t) => {
  const wrong = file('wrong.yaml', GOOD.replace('port: 80', 'prot: 80').replace('v4', 'v5'));
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
  t.match(await runHere('validate'), { code: 2, stderr: /name the file: validate STATE_FILE/ });
});

t.test('a Kubernetes manifest: what it is, where that shows, and what to do', async (t) => {
  const service = 'apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: []}\n';
  const path = file('service.yaml', service);
  const { code, stderr } = await runHere('validate', path);
  t.equal(code, 2);
  t.equal(stderr.split('\n').length, 2, 'one line');
  t.match(
    stderr,
    /service\.yaml:2:1: kind: this is a Kubernetes manifest \(kind: "Service"\), not a state file.*; apply it to a cluster and use the source kube, or .*kube to-file/,
  );
  const several = await runHere('validate', file('all.yaml', `${service}---\n${service}`));
  t.match(several.stderr, /all\.yaml:1:1: this is a Kubernetes manifest/);
  const config = 'apiVersion: kpng-userspace/v1alpha1\nkind: UserspaceProxyConfiguration\n';
  t.match((await runHere('validate', file('config.yaml', config))).stderr, /give it to --config/);
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
  const many = file('many.yaml', `nodes: [${nodes.join(', ')}]\nservices: []\n`);
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
  const state = file('controls.yaml', `services:\n- ${key}: 1\n`);
  const config = 'apiVersion: kpng-userspace/v1alpha1\nkind: UserspaceProxyConfiguration\n';
  const settings = file('controls.config.yaml', `${config}${key}: 1\n`);
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
