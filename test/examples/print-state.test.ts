import { join } from 'node:path';
import t from 'tap';
import { startKpngServer } from '../support/kpng-server.ts';
import { endpoint, reset, service, setEndpoint, setService, sync } from '../support/messages.ts';
import { Running } from '../support/running.ts';

const MAIN = join(import.meta.dirname, '../../examples/print-state/main.ts');

t.test('print-state shows everything at every change, and marks what is new', async (t) => {
  const server = await startKpngServer();
  t.teardown(() => server.stop());
  const args = [MAIN, `--api=127.0.0.1:${server.port}`, '--node-name=n1'];
  const example = new Running(t, process.execPath, args);
  const stream = await server.stream();
  t.equal((await stream.request()).nodeName, 'n1');
  const first = [setService(service('demo/a')), setEndpoint('demo/a/p', endpoint('10.1.0.5'))];
  stream.send(reset, ...first, sync);
  await stream.request();
  await example.said(/^-+\n# 20.*\n\n\* demo\/a \{.*\n {4}p \{.*'10\.1\.0\.5'.*\n$/s);
  stream.send(setService(service('demo/b')), sync);
  await stream.request();
  await example.said(/\n {2}demo\/a \{.*\n\* demo\/b \{.*\n$/s);
  example.kill('SIGTERM');
  t.same(await example.ended, [0, null]);
  t.equal(example.stderr, '');
});
