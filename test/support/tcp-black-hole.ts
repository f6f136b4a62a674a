import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { EndpointSpec } from '../../src/proxysocket/spec.ts';
import { endpointAt, tcpClient } from './tcp-peers.ts';
import { type Teardown } from './sockets.ts';

const CHILD = `
const server = require('node:net').createServer();
server.listen({ host: '127.0.0.1', port: 0, backlog: 1 }, () => {
  console.log(server.address().port);
  // Blocks the loop, so that nothing is ever accepted.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
});
`;

/**
 * An endpoint that answers nothing at all to a connect, as a host behind a firewall does.
 *
 * A process listens and never accepts. With a backlog of 1 the kernel keeps two connections for it;
 * once these are there, it drops whatever else arrives.
 */
export async function blackHole(t: Teardown): Promise<EndpointSpec> {
  const child = spawn(process.execPath, ['-e', CHILD], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.teardown(async () => {
    child.kill('SIGKILL');
    await once(child, 'close');
  });
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  const port = Number(line);
  await tcpClient(t, port);
  await tcpClient(t, port);
  return endpointAt(port);
}
