/** Runs by itself, as under `--permission`: whether there are handles, and what a client gets then. */
import { once } from 'node:events';
import { connect, createServer, type AddressInfo } from 'node:net';
import { createNodeEngine } from '../../src/proxysocket/node/engine.ts';
import { streamCalls } from '../../src/proxysocket/tcp/stream-calls.ts';
import { endpointAt } from './tcp-peers.ts';
import { tcpSpec } from './tcp-rig.ts';

Object.defineProperty(process, 'binding', {
  value: () => {
    throw new Error('ERR_ACCESS_DENIED');
  },
});

const server = createServer((socket) => {
  socket.on('error', () => undefined).pipe(socket);
}).listen({ host: '127.0.0.1', port: 0 });
await once(server, 'listening');
const engine = createNodeEngine();
const spec = tcpSpec([endpointAt((server.address() as AddressInfo).port)]);
await engine.apply([{ kind: 'set', spec }]);
const [service] = engine.snapshot();
const listener = service?.listeners[0];
if (listener?.state !== 'listening') throw new Error(JSON.stringify(listener));
const client = connect({ host: '127.0.0.1', port: listener.boundPort });
client.write('hello');
const [answer] = (await once(client, 'data')) as [Buffer];
client.destroy();
const { bytesIn } = engine.snapshot()[0]?.counters ?? {};
const handles = streamCalls() !== undefined;
process.stdout.write(JSON.stringify({ handles, answer: answer.toString(), bytesIn }));
await engine.destroy();
server.close();
