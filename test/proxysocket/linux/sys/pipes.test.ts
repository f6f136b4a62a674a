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

linuxTest('a socket that takes no more leaves the rest in the pipe', async (t) => {
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
  // A peer that is gone is told by the call.
  sockets.reset(endpoint);
  await until(() => pipes.fill(pipe, inner) > 0);
  await until(() => {
    const taken = pipes.empty(pipe, outer, 1);
    return taken === -EPIPE || taken === -ECONNRESET;
  });
  for (const fd of [client, inner, outer]) sockets.close(fd);
  pipes.close(pipe);
});
