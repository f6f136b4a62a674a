import * as k from '../sys/abi.ts';
import { EPOLL_LAYOUTS, type EpollLayout } from '../sys/abi.ts';
import { importFfi, openLibrary, type FfiModule, type Library } from '../sys/library.ts';
import { addressOf, Pinned } from '../sys/memory.ts';
import { Sys } from '../sys/sys.ts';
import type { DescriptorLedger } from '../sys/ledger.ts';

/** Results of probes for later ones. */
export interface Findings {
  readonly ledger: DescriptorLedger;
  ffi?: FfiModule;
  lib?: Library;
  epollLayout?: EpollLayout | undefined;
}

/** A condition that must hold before clients are served through system calls. */
export interface Probe {
  /** Its name in the log. */
  readonly name: string;
  /** Throws or rejects with the reason if it does not hold. */
  check(findings: Findings): void | Promise<void>;
}

/** The first probe that failed. */
export class ProbeFailure extends Error {
  override readonly name = 'ProbeFailure';
  readonly probe: string;

  constructor(probe: string, cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause), { cause });
    this.probe = probe;
  }
}

/** Rejects with a ProbeFailure at the first probe that fails; later ones do not run. */
export async function runProbes(probes: readonly Probe[], findings: Findings): Promise<Findings> {
  for (const probe of probes) {
    try {
      await probe.check(findings);
    } catch (error) {
      throw new ProbeFailure(probe.name, error);
    }
  }
  return findings;
}

/** Throws unless two values are the same. */
export function expect(what: string, actual: unknown, expected: unknown): void {
  if (actual !== expected) {
    throw new Error(`${what} is ${String(actual)}, not ${String(expected)}`);
  }
}

/** The result of a probe before this one. */
export function found<T>(value: T | undefined, what: string): T {
  if (value === undefined) throw new Error(`${what} is missing`);
  return value;
}

/** Calls after which V8 has optimised the wrappers. */
const WARM_CALLS = 20_000;

/** This system, this processor, and a Node that has `node:ffi` and may use it. */
export function platformProbe(
  platform: string = process.platform,
  arch: string = process.arch,
  load: () => Promise<FfiModule> = importFfi,
): Probe {
  return {
    name: 'platform',
    async check(findings) {
      expect('the system', platform, 'linux');
      if (arch !== 'x64' && arch !== 'arm64') throw new Error(`the processor is ${arch}`);
      findings.ffi = await load();
    },
  };
}

/** Every C function can be resolved. */
export const functionsProbe: Probe = {
  name: 'functions',
  check(findings) {
    findings.lib = openLibrary(found(findings.ffi, 'node:ffi'));
  },
};

/** A failed call gives its error number, before and after its wrapper was optimised. */
export const errnoProbe: Probe = {
  name: 'errno',
  check({ lib }) {
    const { c, errno } = found(lib, 'the library');
    for (let call = 0; call < WARM_CALLS; call += 1) {
      const result = c.read(-1, 0n, 0);
      const number = errno[0];
      if (result !== -1 || number !== k.EBADF) {
        throw new Error(`call ${call} of read(-1) gave ${result} and error number ${number}`);
      }
    }
  },
};

/** Determines the layout of `epoll_event`. */
export const epollProbe: Probe = {
  name: 'epoll',
  check(findings) {
    const { ledger } = findings;
    const lib = found(findings.lib, 'the library');
    const layouts = Object.values<EpollLayout>(EPOLL_LAYOUTS);
    findings.epollLayout = layouts.find((epollLayout) => {
      const sys = new Sys(lib, { ledger, epollLayout });
      const poller = sys.poller(4);
      const fd = lib.c.eventfd(1, k.EFD_CLOEXEC | k.EFD_NONBLOCK);
      // Two, to check the distance between events as well.
      const other = lib.c.eventfd(1, k.EFD_CLOEXEC | k.EFD_NONBLOCK);
      const marks = new Map([
        [fd, 0x12345678],
        [other, -7],
      ]);
      for (const [each, mark] of marks) poller.add(each, k.EPOLLIN, mark);
      const count = poller.wait(0);
      for (const index of [0, 1]) {
        if (marks.get(poller.descriptor(index)) === poller.mark(index)) {
          marks.delete(poller.descriptor(index));
        }
      }
      lib.c.close(fd);
      lib.c.close(other);
      poller.close();
      return count === 2 && marks.size === 0;
    });
    if (findings.epollLayout === undefined) throw new Error('unknown layout of its events');
  },
};

/** Addresses and options arrive unchanged. */
export const addressProbe: Probe = {
  name: 'addresses',
  check(findings) {
    const sys = newSys(findings);
    const { sockets } = sys;
    const fd = sockets.stream(4);
    expect('the result of socket', Math.min(0, fd), 0);
    expect(
      'the result of bind',
      sockets.bind(fd, sys.sockaddr({ address: '127.0.0.1', port: 0 })),
      0,
    );
    const local = sockets.localAddress(fd);
    sockets.setOption(fd, k.SOL_SOCKET, k.SO_KEEPALIVE, 1);
    const option = sockets.getOption(fd, k.SOL_SOCKET, k.SO_KEEPALIVE);
    sockets.close(fd);
    expect('the bound address', local?.address, '127.0.0.1');
    if (!(Number(local?.port) > 0)) throw new Error(`the bound port is ${local?.port}`);
    expect('an option that was set', option, 1);
  },
};

/**
 * Lengths and contents of many transfers are right, with optimised wrappers: the lengths are handed
 * over in 32 bits where the functions take 64.
 */
export function transferProbe(transfers: number): Probe {
  return {
    name: 'transfers',
    check({ lib }) {
      const { ffi, c } = found(lib, 'the library');
      const pair = Pinned.alloc(ffi, 8);
      const flags = k.SOCK_STREAM | k.SOCK_CLOEXEC | k.SOCK_NONBLOCK;
      expect('the result of socketpair', c.socketpair(1, flags, 0, addressOf(pair)), 0);
      const [one, other] = [pair.view.getInt32(0, true), pair.view.getInt32(4, true)];
      try {
        const [from, to] = [Pinned.alloc(ffi, 4096), Pinned.alloc(ffi, 4096)];
        const [fromAddress, toAddress] = [addressOf(from), addressOf(to)];
        for (let index = 0; index < from.length; index += 1) from.bytes[index] = index * 7;
        for (let index = 0; index < transfers; index += 1) {
          const length = 1 + ((index * 37) % 4096);
          from.bytes[length - 1] = index;
          const written = c.write(one, fromAddress, length);
          const read = c.read(other, toAddress, 4096);
          const last = to.bytes[length - 1];
          if (written !== length || read !== length || last !== (index & 255)) {
            throw new Error(`transfer ${index} of ${length} bytes: ${written} out, ${read} in`);
          }
          if (index % 64 === 0 && Buffer.compare(part(from, length), part(to, length)) !== 0) {
            throw new Error(`transfer ${index} of ${length} bytes has changed on its way`);
          }
        }
      } finally {
        c.close(one);
        c.close(other);
      }
    },
  };
}

function part(memory: Pinned, length: number): Uint8Array {
  return memory.bytes.subarray(0, length);
}

export function newSys({ lib, ledger, epollLayout }: Findings): Sys {
  return new Sys(found(lib, 'the library'), {
    ledger,
    ...(epollLayout !== undefined && { epollLayout }),
  });
}
