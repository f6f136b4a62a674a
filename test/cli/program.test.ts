import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { runHere, startCli } from '../support/cli.ts';
import { shortDir } from '../support/short-dir.ts';
import { reset, service, setService, sync } from '../support/messages.ts';
import { startKpngServer } from '../support/kpng-server.ts';

const STATE = `
nodes: [{name: n1}]
services:
- service:
    name: web
    ips: {clusterips: {v4: [127.0.0.1]}}
    ports: [{name: http, protocol: 1, port: 80, targetport: 8080}]
  endpoints:
  - podname: w-0
    endpoint: {ips: {v4: [127.0.0.2]}}
    topology: {node: n1}
`;

const WEB =
  '{"Service":{"Namespace":"default","Name":"web","IPs":{"ClusterIPs":{"V4":["127.0.0.1"]}},' +
  '"Ports":[{"Name":"http","Protocol":1,"Port":80,"TargetPort":8080}],"SessionAffinity":null},' +
  '"Endpoints":[{"IPs":{"V4":["127.0.0.2"]},"Local":true,"Scopes":{"Internal":true,"External":true}}]}\n';

t.test('version and help: on standard output, and nothing else', async (t) => {
  const version = await runHere('version');
  t.match(version, { code: 0, stderr: '' });
  t.match(version.stdout, /^kpng-userspace: \d+\.\d+\.\d+\nnode: /);
  const help = await runHere('--help');
  t.match(help, { code: 0, stderr: '', stdout: /Usage:\n {2}kpng-userspace \[global flags\]/ });
});

t.test('a wrong command line: 2, one clear line, and where to learn more', async (t) => {
  const { code, stdout, stderr } = await runHere('local', 'to-json', '--api', 'nonsense');
  t.equal(code, 2);
  t.equal(stdout, '');
  t.equal(
    stderr,
    'kpng-userspace: --api "nonsense": the port is missing: expected host:port (KPNG_USAGE)\n' +
      'To learn more: kpng-userspace help local to-json\n',
  );
});

t.test('no command line at all: 2, and the whole help on standard error', async (t) => {
  const { code, stdout, stderr } = await runHere();
  t.equal(code, 2);
  t.equal(stdout, '');
  t.match(stderr, /^kpng-userspace: a userspace.*\nUsage:\n/s);
  t.match(stderr, /\n\nkpng-userspace: no source was named \(KPNG_USAGE\)\n$/);
});

t.test('file to-json prints what kpng-json prints, and TERM ends it with 0', async (t) => {
  const path = join(shortDir(t), 'state.yaml');
  writeFileSync(path, STATE);
  const line = ['file', 'to-local', '-input', path, '-logtostderr', '--vmodule=a=1', 'to-json'];
  const cli = startCli(t, [...line, '--node-name=n1']);
  await cli.until(() => cli.stdout.endsWith('\n'), 'the first line');
  cli.kill('SIGTERM');
  t.match(await cli.exited, { code: 0, stdout: WEB });
  const klog = cli.log.filter(({ msg }) => msg === 'Flags of kube-proxy or klog have no effect');
  t.same(
    klog.map(({ flags }) => flags),
    ['--logtostderr --vmodule'],
    'one warning',
  );
  t.same(
    cli.log.filter((each) => !klog.includes(each)).map(({ msg }) => msg),
    [
      'Starting',
      'Loaded the state file',
      'The first complete state is in place',
      'Stopping',
      'Stopped',
    ],
  );
  t.same(cli.otherLines, [], 'nothing but JSON');
});

/** Follows a server that has sent a first state, without having been asked for a second. */
async function follow(t: Test, flags: string[], labels: Record<string, string> = {}) {
  const server = await startKpngServer();
  t.teardown(() => server.stop());
  const cli = startCli(t, ['local', `--api=127.0.0.1:${server.port}`, 'to-json', ...flags]);
  const stream = await server.answer(reset, setService(service('demo/a', { labels })), sync);
  return { cli, stream };
}

t.test('a reader that goes away ends to-json with 0', async (t) => {
  const { cli, stream } = await follow(t, ['-v=1']);
  await stream.request();
  cli.child.stdout?.destroy();
  stream.send(setService(service('demo/b')), sync);
  t.equal((await cli.exited).code, 0);
  t.ok(cli.log.some(({ msg }) => msg === 'Standard output closed by its reader; stopping'));
});

t.test('a stuck reader cannot keep the program alive beyond the drain timeout', async (t) => {
  const flags = ['--drain-timeout=100ms', '-v=2'];
  const { cli } = await follow(t, flags, { filler: 'x'.repeat(3_000_000) });
  cli.child.stdout?.pause();
  await cli.line('Received a complete state', { services: 1 });
  // The pipe is full for good: the next request never comes.
  cli.kill('SIGTERM');
  await cli.line('Drain timeout reached; closing the remaining connections', {
    drainTimeout: '100ms',
  });
  cli.child.stdout?.resume();
  t.equal((await cli.exited).code, 0);
});
