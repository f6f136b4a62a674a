import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { EndpointSpec } from '../../src/proxysocket/spec.ts';
import { endpointAt, tcpClient } from './tcp-peers.ts';
import { type Teardown } from './sockets.ts';

const CHILD = `
const server = require('node:net').createServer();
server.listen({ host: '127.0.0.1', port: 0, backlog: Number(process.argv[1]) }, () => {
  console.log(server.address().port);
  // Blocks the loop, so that nothing is ever accepted.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
});
`;

export interface DeafEndpoint {
  readonly endpoint: EndpointSpec;
  /** Ends its process, which resets what its kernel has taken; resolves when it is gone. */
  kill(): Promise<void>;
}

/** So many connections has Node on Windows asked for before they come: they count as accepted. */
const ASKED_FOR = process.platform === 'win32' ? 32 : 0;

/** An endpoint in a process of its own that is stuck: the kernel takes connections, and it accepts none. */
export async function deafEndpoint(t: Teardown, backlog = 64): Promise<DeafEndpoint> {
  const child = spawn(process.execPath, ['-e', CHILD, String(backlog)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const gone = once(child, 'close');
  const kill = async (): Promise<void> => {
    child.kill('SIGKILL');
    await gone;
  };
  t.teardown(kill);
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  const port = Number(line);
  await Promise.all(Array.from({ length: ASKED_FOR }, () => tcpClient(t, port)));
  return { endpoint: endpointAt(port), kill };
}

/**
 * An endpoint that answers nothing at all to a connect, as a host behind a firewall does.
 *
 * A process listens and never accepts. With a backlog of 1 the kernel keeps two connections for it;
 * once these are there, it drops whatever else arrives.
 */
export async function blackHole(t: Teardown): Promise<EndpointSpec> {
  const { endpoint } = await deafEndpoint(t, 1);
  await tcpClient(t, endpoint.port);
  await tcpClient(t, endpoint.port);
  return endpoint;
}
