import { AcceptorEngine, type CoreOptions } from '../acceptor-engine.ts';
import type { Loop } from './loop.ts';
import { LinuxTcpTransport } from './tcp/transport.ts';
import { linuxUdp } from './udp/transport.ts';

/** The engine on system calls, in the thread that runs the loop. */
export function createDataPlane(loop: Loop, options: CoreOptions): AcceptorEngine {
  return new AcceptorEngine('linux', options, (context) => ({
    tcp: new LinuxTcpTransport(loop, context),
    udp: linuxUdp(loop, context.limits),
  }));
}
