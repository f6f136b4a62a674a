import type { Functions } from './library.ts';

/** The functions that are called for each request, connection or datagram and have up to three arguments. */
export type KnownCalls = Pick<
  Functions,
  'read' | 'write' | 'close' | 'shutdown' | 'socket' | 'connect' | 'sendmsg'
>;

type Call = (a: number, b: number | bigint, c: number) => number;

/**
 * The same functions, so that V8 calls them directly.
 *
 * All functions of `node:ffi` with the same number of arguments share the code of one wrapper, which then
 * cannot know the function that it calls, and goes the slow way: arguments are checked and converted one by
 * one, memory is allocated, and a call costs 170 ns more. Only where V8 copies the wrapper into a caller
 * that calls nothing else the function is known. So each of them gets such a caller, which must not be
 * copied into its own callers in turn: V8 copies so much into one function and no more, and a few calls
 * fill that up. What it cannot foresee it does not copy, which is what `through` is for.
 *
 * For one set of functions in each thread: with a second one they would not be known any more.
 */
export function knownCalls(of: Functions): KnownCalls {
  // In an array, since what is in a constant is foreseen. The names are for traces of V8.
  const calls: Call[] = [
    function knownRead(fd, into, length) {
      return of.read(fd, into as bigint, length);
    },
    function knownWrite(fd, from, length) {
      return of.write(fd, from as bigint, length);
    },
    function knownClose(fd) {
      return of.close(fd);
    },
    function knownShutdown(fd, how) {
      return of.shutdown(fd, how as number);
    },
    function knownSocket(domain, type, protocol) {
      return of.socket(domain, type as number, protocol);
    },
    function knownConnect(fd, to, length) {
      return of.connect(fd, to as bigint, length);
    },
    function knownSendmsg(fd, header, flags) {
      return of.sendmsg(fd, header as bigint, flags);
    },
  ];
  const through = (index: number, a: number, b: number | bigint, c: number): number =>
    (calls[index] as Call)(a, b, c);
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
