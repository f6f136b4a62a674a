import { join } from 'node:path';
import t, { type Test } from 'tap';
import { startKpngServer } from '../support/kpng-server.ts';
import {
  deleteEndpoint,
  deleteService,
  endpoint,
  reset,
  service,
  setEndpoint,
  setService,
  sync,
} from '../support/messages.ts';
import { Running } from '../support/running.ts';
import { freePort } from '../support/sockets.ts';
import { readAll, request, tcpServer } from '../support/tcp-peers.ts';

const MAIN = join(import.meta.dirname, '../../examples/custom-proxier/main.ts');

/** Something that reads to the end and then answers with its name and what it has read. */
async function backend(t: Test, name: string): Promise<number> {
  const server = await tcpServer(t, async (socket) =>
    socket.end(`${name}: ${String(await readAll(socket))}`),
  );
  return server.port;
}

t.test('clients stay with their endpoint while it is there', async (t) => {
  const server = await startKpngServer();
  t.teardown(() => server.stop());
  const port = await freePort();
  const example = new Running(t, process.execPath, [MAIN, `--api=127.0.0.1:${server.port}`]);
  const stream = await server.stream();
  await stream.request();
  const ports = [{ name: 'x', protocol: 1, port, targetPortName: 'x' }] as const;
  const ips = { clusterIPs: { v4: ['127.0.0.1'] } };
  const web = service('demo/web', { ips, ports: [...ports] });
  const at = async (name: string) =>
    endpoint('127.0.0.1', { portOverrides: [{ name: 'x', port: await backend(t, name) }] });
  const [one, two] = [await at('one'), await at('two')];
  const both = [setEndpoint('demo/web/1', one), setEndpoint('demo/web/2', two)];
  stream.send(reset, setService(web), ...both, sync);
  await stream.request();
  await example.said(/^listening on 127\.0\.0\.1:\d+\n$/);

  // Some systems have only one address of loopback.
  const clients =
    process.platform === 'linux'
      ? Array.from({ length: 20 }, (_, index) => `127.0.1.${index + 1}`)
      : ['127.0.0.1'];
  const askAll = () =>
    Promise.all(clients.map((localAddress) => request(t, port, 'hello', { localAddress })));
  const first = await askAll();
  for (const answer of first) t.match(answer, /^(one|two): hello$/, 'half-close is passed on');
  t.same(await askAll(), first, 'the same for each client');
  if (clients.length > 1) t.equal(new Set(first).size, 2, 'both endpoints are used');

  stream.send(deleteEndpoint('demo/web/1'), sync);
  await stream.request();
  t.same(new Set(await askAll()), new Set(['two: hello']));
  stream.send(setEndpoint('demo/web/1', one), sync);
  await stream.request();
  t.same(await askAll(), first, 'as before when it is back');

  stream.send(deleteService('demo/web'), sync);
  await stream.request();
  await t.rejects(request(t, port), { code: 'ECONNREFUSED' });
  example.kill('SIGTERM');
  t.same(await example.ended, [0, null]);
});
