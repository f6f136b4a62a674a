import { once } from 'node:events';
import { createServer, isIPv6 } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { takeInherited } from '../../core/inherited.ts';
import type { Listening } from '../../core/listener.ts';
import type { EngineContext } from '../../core/service-port.ts';
import type { EngineLimits } from '../../limits.ts';
import type { ListenSpec } from '../../spec.ts';
import type { AcceptOwner, TcpTransport } from '../../tcp/transport.ts';
import { acceptWithOnread, canAcceptWithOnread } from './accept.ts';
import { CopyMemory } from './buffers.ts';
import { NodeTcpClient } from './client.ts';

export class NodeTcpTransport implements TcpTransport {
  readonly #memory: CopyMemory;
  readonly #limits: EngineLimits;
  readonly #documentedOnly: boolean;

  constructor({ limits, clock }: EngineContext, documentedOnly = false) {
    this.#limits = limits;
    this.#documentedOnly = documentedOnly;
    this.#memory = new CopyMemory(clock, limits);
  }

  async listen(spec: ListenSpec, owner: AcceptOwner): Promise<Listening> {
    const withOnread = !this.#documentedOnly && (await canAcceptWithOnread());
    const { backlog, keepAliveMs } = this.#limits;
    const server = createServer({
      pauseOnConnect: true,
      allowHalfOpen: true,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: keepAliveMs,
    });
    const { address: host, port } = spec;
    const fd = takeInherited('TCP', host, port);
    const listening = once(server, 'listening');
    server.listen(
      fd === undefined
        ? // The IPv4 wildcard is a listener of its own.
          { host, port, backlog, ipv6Only: isIPv6(host), exclusive: true }
        : { fd, backlog },
    );
    await listening;
    const memory = this.#memory;
    // Node keeps accepting after an error. Without descriptors there is no error: libuv keeps a spare descriptor
    // to accept and close waiting connections, so that the loop does not spin.
    server.on('error', () => owner.acceptFailed());
    const accepted = (client: NodeTcpClient): void => {
      memory.priority.accepted();
      owner.accepted(client);
    };
    // In the same turn, before the loop can accept the first connection.
    const isTaken =
      withOnread &&
      acceptWithOnread(server, keepAliveMs, (makeSocket) =>
        accepted(new NodeTcpClient(memory, makeSocket)),
      );
    if (!isTaken) server.on('connection', (socket) => accepted(new NodeTcpClient(memory, socket)));
    const bound = server.address();
    return {
      boundPort: typeof bound === 'object' && bound !== null ? bound.port : port,
      async close() {
        // The port is free as soon as the handle is closed, which this does at once. Its callback comes too late: where
        // Node counts the accepted sockets, it waits for the last of them.
        server.close();
        await nextTurn();
      },
    };
  }
}
