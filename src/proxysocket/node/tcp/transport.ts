import { once } from 'node:events';
import { createServer, isIPv6 } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { takeInherited } from '../../../util/inherited.ts';
import type { EngineContext } from '../../core/service-port.ts';
import type { TcpTransport } from '../../tcp/transport.ts';
import { acceptWithOnread, canAcceptWithOnread } from './accept.ts';
import { CopyMemory } from './buffers.ts';
import { NodeTcpClient } from './client.ts';

/** `documentedOnly`: see `NodeEngineOptions`. */
export function nodeTcp({ clock, limits }: EngineContext, documentedOnly = false): TcpTransport {
  const memory = new CopyMemory(clock, limits);
  const { backlog, keepAliveMs } = limits;
  return {
    async listen({ address: host, port }, owner) {
      const withOnread = !documentedOnly && (await canAcceptWithOnread());
      const server = createServer({
        pauseOnConnect: true,
        allowHalfOpen: true,
        noDelay: true,
        keepAlive: true,
        keepAliveInitialDelay: keepAliveMs,
      });
      const fd = takeInherited('TCP', host, port);
      const listening = once(server, 'listening');
      server.listen(
        fd === undefined
          ? // The IPv4 wildcard is a listener of its own.
            { host, port, backlog, ipv6Only: isIPv6(host), exclusive: true }
          : { fd, backlog },
      );
      await listening;
      // Node keeps accepting after an error. Without descriptors there is no error: libuv keeps a spare descriptor
      // to accept and close waiting connections, so that the loop does not spin.
      server.on('error', () => owner.acceptFailed());
      const accepted = (socket: ConstructorParameters<typeof NodeTcpClient>[1]): void => {
        memory.priority.accepted();
        owner.accepted(new NodeTcpClient(memory, socket));
      };
      // In the same turn, before the loop can accept the first connection.
      const isTaken = withOnread && acceptWithOnread(server, keepAliveMs, accepted);
      if (!isTaken) server.on('connection', accepted);
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
    },
  };
}
