import {
  EAGAIN,
  ECONNRESET,
  EPIPE,
  SO_SNDBUF,
  SOL_SOCKET,
} from '../../../../src/proxysocket/linux/sys/abi.ts';
import { PIPE_BYTES } from '../../../../src/proxysocket/linux/sys/streams.ts';
import { connectedPair, linuxTest, newSys } from '../../../support/linux-sys.ts';
import { openDescriptors } from '../../../support/sockets.ts';
import { until } from '../../../support/until.ts';
import * as k from '../../../../src/proxysocket/linux/sys/abi.ts';
import { INTEREST, READY } from '../../../../src/proxysocket/linux/sys/poller.ts';

linuxTest(
  'bytes go from socket to socket through a pipe, in order, and then the end',
  async (t) => {
    const before = openDescriptors();
    const sys = newSys();
    const { pipes, streams, sockets } = sys;
    const pipe = pipes.open();
    if (pipe === undefined) throw new Error('no pipe');
    t.equal(openDescriptors(), before + 2);
    t.same(sys.ledger.list().slice(-2), [pipe.readFd, pipe.writeFd]);
    const [client, inner] = connectedPair(sys);
    const [outer, endpoint] = connectedPair(sys);
    t.equal(pipes.fill(pipe, inner), -EAGAIN, 'nothing is there');

    const sent = sys.alloc(200_000);
    for (let index = 0; index < sent.length; index += 1) sent.bytes[index] = index % 251;
    t.equal(streams.write(client, sent, sent.length), sent.length);
    let moved = 0;
    const received = sys.alloc(sent.length);
    let read = 0;
    await until(() => {
      const filled = pipes.fill(pipe, inner);
      if (filled > 0) {
        t.equal(pipes.empty(pipe, outer, filled), filled);
        moved += filled;
      }
      const length = streams.read(endpoint, received, received.length - read, read);
      if (length > 0) read += length;
      return read === sent.length;
    });
    t.equal(moved, sent.length);
    t.same(Buffer.compare(received.bytes, sent.bytes), 0);

    sockets.close(client);
    await until(() => pipes.fill(pipe, inner) === 0);
    for (const fd of [inner, outer, endpoint]) sockets.close(fd);
    pipes.close(pipe);
    t.equal(openDescriptors(), before);
  },
);

linuxTest('a full socket leaves the rest in the pipe', async (t) => {
  const sys = newSys();
  const { pipes, streams, sockets } = sys;
  const pipe = pipes.open();
  if (pipe === undefined) throw new Error('no pipe');
  const [client, inner] = connectedPair(sys);
  const [outer, endpoint] = connectedPair(sys);
  sockets.setOption(outer, SOL_SOCKET, SO_SNDBUF, 4096);
  const memory = sys.alloc(PIPE_BYTES);
  let given = 0;
  let left = 0;
  await until(() => {
    const written = streams.write(client, memory, memory.length);
    if (written > 0) given += written;
    const filled = left > 0 ? 0 : Math.max(0, pipes.fill(pipe, inner));
    left += filled;
    const taken = pipes.empty(pipe, outer, left);
    if (taken > 0) left -= taken;
    return taken === -EAGAIN;
  });
  t.ok(left > 0 && left <= PIPE_BYTES, `${left} bytes are left`);
  let read = 0;
  const drain = (): void => {
    const length = streams.read(endpoint, memory, memory.length);
    if (length > 0) read += length;
  };
  await until(() => {
    drain();
    const taken = pipes.empty(pipe, outer, left);
    if (taken > 0) left -= taken;
    return left === 0;
  });
  t.ok(read <= given);
  // A peer that is gone is reported by the call.
  sockets.reset(endpoint);
  await until(() => pipes.fill(pipe, inner) > 0);
  await until(() => {
    const taken = pipes.empty(pipe, outer, 1);
    return taken === -EPIPE || taken === -ECONNRESET;
  });
  for (const fd of [client, inner, outer]) sockets.close(fd);
  pipes.close(pipe);
});

linuxTest('edges are reported once, levels again and again', (t) => {
  const sys = newSys();
  const poller = sys.poller(8);
  const [one, other] = connectedPair(sys);
  t.equal(poller.add(one, INTEREST.edges, 7), 0);
  const memory = sys.alloc(16);

  t.equal(poller.wait(0), 1);
  t.match([poller.descriptor(0), poller.mark(0), poller.mask(0)], [one, 7, READY.writable]);
  t.equal(poller.wait(0), 0, 'it is writable still, and nothing is new');
  sys.streams.write(other, memory, 4);
  t.equal(poller.wait(1000), 1);
  t.ok((poller.mask(0) & READY.readable) !== 0);
  t.equal(poller.wait(0), 0);
  sys.streams.write(other, memory, 4);
  t.equal(poller.wait(1000), 1, 'more has come');

  t.equal(poller.remove(one), 0);
  t.equal(poller.add(one, INTEREST.readable, -1), 0);
  t.equal(poller.wait(0), 1);
  t.equal(poller.wait(0), 1, 'it has not been read');
  t.equal(poller.mark(0), -1);

  t.equal(poller.add(one, INTEREST.readable, 0), -17, 'EEXIST');
  t.equal(poller.add(-1, INTEREST.readable, 0), -k.EBADF);
  sys.sockets.close(one);
  t.equal(poller.wait(0), 0, 'what is closed is not reported');
  sys.sockets.close(other);
  poller.close();
});

linuxTest('how a connection ends is reported', (t) => {
  const sys = newSys();
  for (const how of ['shutdownWrite', 'reset'] as const) {
    const poller = sys.poller(8);
    const [one, other] = connectedPair(sys);
    poller.add(one, INTEREST.edges, 1);
    poller.wait(0);
    sys.sockets[how](other);
    t.equal(poller.wait(1000), 1);
    const mask = poller.mask(0);
    t.ok((mask & READY.peerClosed) !== 0);
    t.equal((mask & READY.error) !== 0, how === 'reset');
    t.equal((mask & READY.hangUp) !== 0, how === 'reset');
    sys.sockets.close(one);
    if (how !== 'reset') sys.sockets.close(other);
    poller.close();
  }
});

linuxTest('many events of one wait are distinguished', (t) => {
  const sys = newSys();
  const poller = sys.poller(64);
  const fds = Array.from({ length: 100 }, () => sys.sockets.datagram(4));
  for (const fd of fds) poller.add(fd, k.EPOLLOUT, fd * 1000);
  const count = poller.wait(0);
  t.equal(count, 64, 'as many as fit');
  const seen = new Set<number>();
  for (let index = 0; index < count; index += 1) {
    const fd = poller.descriptor(index);
    if (poller.mark(index) !== fd * 1000) t.fail(`mark ${poller.mark(index)} of ${fd}`);
    seen.add(fd);
  }
  t.equal(seen.size, 64);
  for (const fd of fds) sys.sockets.close(fd);
  poller.close();
});

linuxTest('a wait ends with its time, and with a wake-up', (t) => {
  const sys = newSys();
  const poller = sys.poller(8);
  const before = performance.now();
  t.equal(poller.wait(30), 0);
  t.ok(performance.now() - before >= 25);

  const wake = sys.wake();
  poller.add(wake.fd, INTEREST.readable, 0);
  const one = sys.alloc(8);
  one.bytes[0] = 1;
  sys.streams.write(wake.fd, one, 8);
  t.equal(poller.wait(1000), 1);
  wake.drain();
  t.equal(poller.wait(0), 0);
  sys.sockets.close(wake.fd);
  poller.close();
});
