import { writeSockaddr, type SocketAddress } from './address.ts';
import { SOCKADDR_BYTES } from './layout.ts';
import type { FfiModule } from './library.ts';
import { Pinned } from './memory.ts';

/** An address in the form that the kernel takes, made once and used for many calls. */
export class Sockaddr {
  readonly memory: Pinned;
  readonly length: number;
  readonly family: 4 | 6;

  /** Throws a RangeError for what is no address. */
  constructor(ffi: FfiModule, address: SocketAddress) {
    this.memory = Pinned.alloc(ffi, SOCKADDR_BYTES);
    this.length = writeSockaddr(this.memory.view, 0, address);
    this.family = this.length === 16 ? 4 : 6;
  }
}
