/** UDP endpoints that say who they are, and clients that ask them through a proxy. */
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import type { HandoverRig } from './handover-rig.ts';
import type { Teardown } from './sockets.ts';

/** How long an answer may take. */
const PATIENCE_MS = 10_000;

/** A UDP socket that answers with its port. Returns that. */
export async function namedEndpoint(t: Teardown): Promise<number> {
  const socket = createSocket('udp4');
  socket.on('message', (_, { port, address }) => {
    socket.send(String(socket.address().port), port, address);
  });
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  t.teardown(() => socket.close());
  return socket.address().port;
}

/** A state file with a UDP service at the port of the rig and these endpoints. Returns its path. */
export function manyEndpoints({ port, socket }: HandoverRig, endpoints: readonly number[]): string {
  const path = `${socket}.endpoints.yaml`;
  const items = endpoints.map((each) => ({
    endpoint: { ips: { v4: ['127.0.0.1'] }, portoverrides: [{ name: 'u', port: each }] },
    topology: { node: 'n1' },
  }));
  const service = {
    name: 'many',
    ips: { clusterips: { v4: ['127.0.0.1'] } },
    ports: [{ name: 'u', protocol: 2, port, targetport: 1 }],
  };
  writeFileSync(
    path,
    JSON.stringify({ nodes: [{ name: 'n1' }], services: [{ service, endpoints: items }] }),
  );
  return path;
}

/** A client port. */
export class UdpClient {
  readonly #socket: Socket;

  private constructor(socket: Socket) {
    this.#socket = socket;
  }

  static async open(t: Teardown, port: number): Promise<UdpClient> {
    const socket = createSocket('udp4');
    socket.connect(port, '127.0.0.1');
    await once(socket, 'connect');
    t.teardown(() => socket.close());
    return new UdpClient(socket);
  }

  /** Which endpoint answers. Rejects when none does. */
  async ask(): Promise<string> {
    const answer = once(this.#socket, 'message', { signal: AbortSignal.timeout(PATIENCE_MS) });
    this.#socket.send('who?');
    const [message] = (await answer) as [Buffer];
    return String(message);
  }
}
