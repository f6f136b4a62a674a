import { AcceptorEngine, type CoreOptions } from '../acceptor-engine.ts';
import type { Loop } from './loop.ts';
import { LinuxTcpTransport } from './tcp/transport.ts';
import { LinuxUdpTransport } from './udp/transport.ts';

/** The engine on system calls, in the thread that runs the loop. */
export function createDataPlane(loop: Loop, options: CoreOptions): AcceptorEngine {
  return new AcceptorEngine('linux', options, (context) => ({
    tcp: new LinuxTcpTransport(loop, context),
    udp: new LinuxUdpTransport(loop, context),
  }));
}
