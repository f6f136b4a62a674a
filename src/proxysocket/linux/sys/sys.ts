/**
 * System calls. Structures and addresses stay in this folder; outside, descriptors are numbers, memory is `Pinned`, and
 * errors are negative error numbers or Node's own errors.
 */
import { DescriptorLedger } from './ledger.ts';
import { importFfi, openLibrary, type Library } from './library.ts';
import { Sockets } from './sockets.ts';
import { Pipes } from './pipes.ts';

/** The system calls of one thread. Not to be used from another one. */
export class Sys implements Library {
  readonly ffi: Library['ffi'];
  readonly c: Library['c'];
  readonly ledger: DescriptorLedger;
  readonly sockets: Sockets;
  readonly pipes: Pipes;

  /** `ledger`: where open descriptors are noted. */
  constructor({ ffi, c }: Library, ledger = DescriptorLedger.create(1 << 16)) {
    this.ffi = ffi;
    this.c = c;
    this.ledger = ledger;
    this.sockets = new Sockets(this, ledger);
    this.pipes = new Pipes(this, ledger);
  }
}

/** Rejects where this Node has no `node:ffi` or may not use it, and when a C function is missing. */
export async function openSys(): Promise<Sys> {
  return new Sys(openLibrary(await importFfi()));
}
