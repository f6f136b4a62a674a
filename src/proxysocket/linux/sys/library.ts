import type * as ffi from 'node:ffi';
import { messageOf } from '../../../errors.ts';

/**
 * The C functions that this engine calls, resolved from the process itself: `dlopen(null)` finds them with glibc and
 * with musl, in worker threads and in a single executable.
 *
 * Measured with Node 26: calls with up to three arguments have a specialised wrapper (60 to 170 ns), others cost 300
 * to 400 ns, and 64-bit types allocate a BigInt. So lengths are `u32`, which relies on the upper half of the register
 * being zero (the start-up probes verify that), and results `i32`.
 */
export const SIGNATURES = {
  read: { arguments: ['i32', 'pointer', 'u32'], return: 'i32' },
  write: { arguments: ['i32', 'pointer', 'u32'], return: 'i32' },
  recv: { arguments: ['i32', 'pointer', 'u32', 'i32'], return: 'i32' },
  close: { arguments: ['i32'], return: 'i32' },
  shutdown: { arguments: ['i32', 'i32'], return: 'i32' },
  socket: { arguments: ['i32', 'i32', 'i32'], return: 'i32' },
  bind: { arguments: ['i32', 'pointer', 'u32'], return: 'i32' },
  listen: { arguments: ['i32', 'i32'], return: 'i32' },
  connect: { arguments: ['i32', 'pointer', 'u32'], return: 'i32' },
  accept4: { arguments: ['i32', 'pointer', 'pointer', 'i32'], return: 'i32' },
  getsockname: { arguments: ['i32', 'pointer', 'pointer'], return: 'i32' },
  getpeername: { arguments: ['i32', 'pointer', 'pointer'], return: 'i32' },
  setsockopt: { arguments: ['i32', 'i32', 'i32', 'pointer', 'u32'], return: 'i32' },
  getsockopt: { arguments: ['i32', 'i32', 'i32', 'pointer', 'pointer'], return: 'i32' },
  socketpair: { arguments: ['i32', 'i32', 'i32', 'pointer'], return: 'i32' },
  recvmmsg: { arguments: ['i32', 'pointer', 'u32', 'i32', 'pointer'], return: 'i32' },
  sendmmsg: { arguments: ['i32', 'pointer', 'u32', 'i32'], return: 'i32' },
  sendmsg: { arguments: ['i32', 'pointer', 'i32'], return: 'i32' },
  recvmsg: { arguments: ['i32', 'pointer', 'i32'], return: 'i32' },
  epoll_create1: { arguments: ['i32'], return: 'i32' },
  epoll_ctl: { arguments: ['i32', 'i32', 'i32', 'pointer'], return: 'i32' },
  epoll_wait: { arguments: ['i32', 'pointer', 'i32', 'i32'], return: 'i32' },
  pipe2: { arguments: ['pointer', 'i32'], return: 'i32' },
  /** Variadic in C, as `ioctl` below. */
  fcntl: { arguments: ['i32', 'i32', 'i32'], return: 'i32' },
  splice: { arguments: ['i32', 'pointer', 'i32', 'pointer', 'u32', 'u32'], return: 'i32' },
  eventfd: { arguments: ['u32', 'i32'], return: 'i32' },
  /** Variadic in C; on Linux the arguments go where those of other functions go. */
  ioctl: { arguments: ['i32', 'u32', 'pointer'], return: 'i32' },
  __errno_location: { arguments: [], return: 'pointer' },
} as const;

export type FfiModule = typeof ffi;
type Resolved = ffi.DynamicLibraryResult<typeof SIGNATURES>['functions'];
type Plain<F> = F extends (...values: infer A) => infer R ? (...values: A) => R : never;

export type Functions = { readonly [Name in keyof Resolved]: Plain<Resolved[Name]> };

/** The functions by name. A failed call returns its negative error number. */
export interface Library {
  readonly ffi: FfiModule;
  readonly c: Functions;
}

let loading: Promise<FfiModule> | undefined;

/** Rejects where this Node has no `node:ffi`, or may not use it. */
export function importFfi(): Promise<FfiModule> {
  return (loading ??= loadQuietly());
}

/** Without Node's warning that `node:ffi` is experimental, which the probes cover. */
async function loadQuietly(): Promise<FfiModule> {
  const emitWarning = process.emitWarning.bind(process);
  process.emitWarning = (warning: string | Error, ...rest: unknown[]) => {
    if (rest[0] !== 'ExperimentalWarning') Reflect.apply(emitWarning, process, [warning, ...rest]);
  };
  try {
    // Never a static import: it would make the program unloadable where the module is missing.
    return await import('node:ffi');
  } finally {
    process.emitWarning = emitWarning;
  }
}

/** Why clients cannot be served through system calls: the start-up probe that failed. */
export class UnfitError extends Error {
  override readonly name = 'UnfitError';

  constructor(probe: string, cause: unknown) {
    super(`${probe}: ${messageOf(cause)}`, { cause });
  }
}

/**
 * The first probe: this system, this processor, and a Node that has `node:ffi`, may use it, and finds every C function.
 * Rejects with an UnfitError.
 */
export async function probePlatform(
  platform: string = process.platform,
  arch: string = process.arch,
  load: () => Promise<FfiModule> = importFfi,
): Promise<Library> {
  try {
    if (platform !== 'linux') throw new Error(`the system is ${platform}, not linux`);
    if (arch !== 'x64' && arch !== 'arm64') throw new Error(`the processor is ${arch}`);
    return openLibrary(await load());
  } catch (error) {
    throw new UnfitError('platform', error);
  }
}

/** Returns memory to the system that glibc keeps after `free`. Takes some milliseconds. Rejects without such a function. */
export async function releaseMemory(): Promise<void> {
  const { dlopen } = await importFfi();
  const { functions } = dlopen(null, { malloc_trim: { arguments: ['u32'], return: 'i32' } });
  functions.malloc_trim(0);
}

/** By module, of which each thread has its own: the functions are resolved once (see `knownCalls`). */
const opened = new WeakMap<FfiModule, Library>();

/** Throws when a function is missing. Functions belong to the calling thread. */
export function openLibrary(ffi: FfiModule): Library {
  const known = opened.get(ffi);
  if (known !== undefined) return known;
  const { functions } = ffi.dlopen(null, SIGNATURES);
  const errno = new Int32Array(ffi.toArrayBuffer(functions.__errno_location(), 4, false));
  const checked = Object.entries(functions).map(([name, call]) => [
    name,
    withErrno(call as AnyCall, errno),
  ]);
  const c = { ...(Object.fromEntries(checked) as Functions), ...knownCalls(functions, errno) };
  const library = { ffi, c };
  opened.set(ffi, library);
  return library;
}

type AnyCall = (...values: unknown[]) => number;

/**
 * The error number is read right where the call was made, with no function in between: V8 may compile a function as it
 * is entered, with system calls of its own, which change the error number of the thread.
 */
function withErrno(call: AnyCall, errno: Int32Array): AnyCall {
  return (...values) => {
    const result = call(...values);
    return result < 0 ? -(errno[0] ?? 0) : result;
  };
}

/** The functions that are called for each request, connection or datagram and have up to three arguments. */
type KnownCalls = Pick<
  Functions,
  'read' | 'write' | 'close' | 'shutdown' | 'socket' | 'connect' | 'sendmsg'
>;

type Call = (a: number, b: number | bigint, c: number) => number;

/**
 * The same functions, so that V8 calls them directly.
 *
 * All functions of `node:ffi` with the same number of arguments share one wrapper, whose generic path costs 170 ns
 * more. V8 knows the function only where it inlines the wrapper into a caller that calls nothing else. So each
 * function gets such a caller, which itself must not be inlined, as that would use up V8's inlining budget:
 * `through` calls it by an index that V8 cannot predict.
 *
 * Once in each thread: with a second set, V8 would not know the functions any more.
 */
function knownCalls(of: Functions, errno: Int32Array): KnownCalls {
  // In an array, since V8 would inline a constant. The names are for traces of V8.
  const calls = Object.values<Call>({
    knownRead: (fd, into, length) => of.read(fd, into as bigint, length),
    knownWrite: (fd, from, length) => of.write(fd, from as bigint, length),
    knownClose: (fd) => of.close(fd),
    knownShutdown: (fd, how) => of.shutdown(fd, how as number),
    knownSocket: (domain, type, protocol) => of.socket(domain, type as number, protocol),
    knownConnect: (fd, to, length) => of.connect(fd, to as bigint, length),
    knownSendmsg: (fd, header, flags) => of.sendmsg(fd, header as bigint, flags),
  });
  const through = (index: number, a: number, b: number | bigint, c: number): number => {
    const result = (calls[index] as Call)(a, b, c);
    return result < 0 ? -(errno[0] ?? 0) : result;
  };
  return {
    read: (fd, into, length) => through(0, fd, into as bigint, length),
    write: (fd, from, length) => through(1, fd, from as bigint, length),
    close: (fd) => through(2, fd, 0, 0),
    shutdown: (fd, how) => through(3, fd, how, 0),
    socket: (domain, type, protocol) => through(4, domain, type, protocol),
    connect: (fd, to, length) => through(5, fd, to as bigint, length),
    sendmsg: (fd, header, flags) => through(6, fd, header as bigint, flags),
  };
}
