import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { resetHandle, type TcpHandle } from '../../../src/proxysocket/tcp/handle.ts';
import { HandleSocket } from '../../../src/proxysocket/tcp/handle-socket.ts';
import { resetSocket } from '../../../src/proxysocket/tcp/reset.ts';
import { streamCalls } from '../../../src/proxysocket/tcp/stream-calls.ts';
import { ENGINE } from '../../support/engine-under-test.ts';
import { refusingEndpoint } from '../../support/tcp-peers.ts';
import { until } from '../../support/until.ts';

const calls = streamCalls();

/** What a socket has told, in order, and what it has read. */
interface Watched {
  readonly told: string[];
  readonly chunks: Buffer[];
}

interface Pair extends Watched {
  readonly socket: HandleSocket;
  readonly peer: Socket;
}

function watch(socket: HandleSocket, { told }: Watched): void {
  for (const event of ['connect', 'end', 'finish', 'close']) {
    socket.on(event, () => told.push(event));
  }
  socket.on('error', (error: NodeJS.ErrnoException) => told.push(error.code ?? error.message));
}

/** A socket that is connected to a peer of this test, which reads nothing by itself. */
async function pair(
  t: Test,
  { address = '127.0.0.1', reads = (): boolean => true } = {},
): Promise<Pair> {
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true });
  server.listen({ host: address, port: 0 });
  await once(server, 'listening');
  const watched: Watched = { told: [], chunks: [] };
  const buffer = Buffer.alloc(64 * 1024);
  const socket = open({ address, port: (server.address() as AddressInfo).port }, (length) => {
    watched.chunks.push(Buffer.from(buffer.subarray(0, length)));
    return reads();
  });
  watch(socket, watched);
  const [peer] = (await once(server, 'connection')) as [Socket];
  peer.on('error', () => undefined);
  t.teardown(() => {
    socket.destroy();
    peer.destroy();
    server.close();
  });
  await until(() => watched.told.includes('connect'));
  return { socket, peer, ...watched };

  function open(to: { address: string; port: number }, callback: (length: number) => boolean) {
    if (calls === undefined) throw new Error('this Node gives no handles');
    const family = to.address.includes(':') ? 6 : 4;
    return HandleSocket.connect(calls, { ...to, family }, { buffer: () => buffer, callback });
  }
}

/** Writes until the kernel takes no more. */
function fill(socket: HandleSocket): void {
  while (socket.writableLength === 0) socket.write(Buffer.alloc(1 << 20));
}

/** A handle that answers with these statuses, and what it was asked for. */
function answering(statuses: { readonly reset: number; readonly setNoDelay: number }) {
  const asked: string[] = [];
  const handle = {
    reset: () => {
      asked.push('reset');
      return statuses.reset;
    },
    setNoDelay: () => statuses.setNoDelay,
    readStop: () => asked.push('readStop'),
    close(closed: () => void) {
      asked.push('close');
      closed();
    },
  };
  return { asked, handle: handle as unknown as TcpHandle };
}

function text({ chunks }: Watched): string {
  return Buffer.concat(chunks).toString();
}

// Once is enough: no engine has a part in it.
if (ENGINE === 'node') {
  for (const address of ['127.0.0.1', '::1']) {
    t.test(`${address}: both directions end one after the other`, async (t) => {
      const { socket, peer, told, chunks } = await pair(t, { address });
      t.equal(socket.localPort, peer.remotePort);
      t.equal(socket.localAddress, address);
      peer.end('from the peer');
      await until(() => told.includes('end'));
      t.equal(text({ told, chunks }), 'from the peer');
      t.notOk(socket.destroyed, 'it can be half open');
      socket.write(Buffer.from('and back'));
      socket.end();
      peer.resume();
      const [answer] = (await once(peer, 'data')) as [Buffer];
      t.equal(answer.toString(), 'and back');
      await until(() => told.includes('close'));
      t.same(told, ['connect', 'end', 'finish', 'close']);
      t.notOk(socket.writable);
    });
  }

  t.test('an endpoint that refuses is an error with a code', async (t) => {
    const { address, port } = await refusingEndpoint(t);
    if (calls === undefined) throw new Error('this Node gives no handles');
    const watched: Watched = { told: [], chunks: [] };
    const onread = { buffer: Buffer.alloc(1), callback: () => true };
    const socket = HandleSocket.connect(calls, { address, port, family: 4 }, onread);
    watch(socket, watched);
    await until(() => watched.told.includes('close'));
    t.same(watched.told, ['ECONNREFUSED', 'close']);
    for (const wrong of [-1, 65_536, 1.5]) {
      const to = { address, port: wrong, family: 4 } as const;
      t.throws(() => HandleSocket.connect(calls, to, onread), RangeError);
    }
  });

  t.test(
    'what the kernel does not take at once is told, kept and sent before the end',
    async (t) => {
      const { socket, peer, told } = await pair(t);
      const chunk = Buffer.alloc(1 << 20, 'x');
      let sent = 0;
      while (socket.writableLength === 0) {
        socket.write(chunk);
        sent += chunk.length;
      }
      t.equal(socket.writableLength, chunk.length);
      t.ok(socket.queuedBytes > 0 && socket.queuedBytes <= chunk.length);
      const order: string[] = [];
      socket.write(Buffer.from('last'), () => order.push('last'));
      socket.write(Buffer.alloc(0), () => order.push('nothing'));
      socket.end();
      t.notOk(socket.writableFinished);
      t.same(order, []);
      let arrived = 0;
      let tail = '';
      peer.on('data', (data: Buffer) => {
        arrived += data.length;
        tail = (tail + data.toString('latin1')).slice(-5);
      });
      peer.resume();
      await until(() => peer.readableEnded);
      t.equal(arrived, sent + 4);
      t.equal(tail, 'xlast');
      t.same(order, ['last', 'nothing']);
      t.equal(socket.writableLength, 0);
      t.ok(told.includes('finish'));
      peer.end();
      await until(() => told.includes('close'));
    },
  );

  t.test('it reads no more when it is told so, until it may again', async (t) => {
    let may = false;
    const { socket, peer, chunks } = await pair(t, { reads: () => may });
    peer.write('one');
    await until(() => chunks.length === 1);
    peer.write('two');
    // Another connection through the loop, there and back: 'two' would have been read by now.
    const other = await pair(t);
    other.peer.write('x');
    await until(() => other.chunks.length === 1);
    t.equal(Buffer.concat(chunks).toString(), 'one');
    may = true;
    socket.read();
    await until(() => chunks.length === 2);
    t.equal(Buffer.concat(chunks).toString(), 'onetwo');
  });

  t.test('a reset of the peer is an error, and so is writing to nobody', async (t) => {
    const one = await pair(t);
    one.peer.resetAndDestroy();
    await until(() => one.told.includes('close'));
    t.same(one.told, ['connect', 'ECONNRESET', 'close']);

    // It does not read, as a direction that waits for its sink, and learns it by writing nothing.
    const two = await pair(t, { reads: () => false });
    two.peer.write('x');
    await until(() => two.chunks.length === 1);
    two.peer.resetAndDestroy();
    await until(() => {
      two.socket.write(Buffer.alloc(0));
      return two.told.includes('close');
    });
    t.match(two.told, ['connect', /^(?:ECONNRESET|EPIPE)$/, 'close']);
    const late: unknown[] = [];
    two.socket.write(Buffer.from('x'), (error) => late.push(error));
    await until(() => late.length === 1);
    t.type(late[0], Error);
  });

  for (const waiting of [false, true]) {
    t.test(`the peer sees a reset, with data ${waiting ? 'waiting' : 'sent'}`, async (t) => {
      const { socket, peer, told } = await pair(t);
      const error = new Promise<NodeJS.ErrnoException>((resolve) => peer.once('error', resolve));
      if (waiting) fill(socket);
      resetSocket(socket);
      // Node 22 may take a reset for an end; then writing tells.
      peer.on('end', () => peer.write(Buffer.alloc(0)));
      peer.resume();
      t.match((await error).code, /^(?:ECONNRESET|EPIPE)$/);
      await until(() => told.includes('close'));
      t.same(told, ['connect', 'close']);
      t.equal(socket.queuedBytes, 0);
    });
  }

  t.test('a reset while its own FIN is on its way frees the descriptor, too', async (t) => {
    const { socket, told } = await pair(t);
    socket.end();
    resetSocket(socket);
    t.notOk(socket.destroyed, 'it waits for the FIN');
    await until(() => told.includes('close'));
    t.same(told, ['connect', 'finish', 'close']);
  });

  t.test('a reset of the socket itself waits for its FIN, too', async (t) => {
    const { socket, peer, told } = await pair(t);
    const error = new Promise<NodeJS.ErrnoException>((resolve) => peer.once('error', resolve));
    socket.end();
    socket.resetAndDestroy();
    t.ok(socket.destroyed);
    await until(() => told.includes('close'));
    t.same(told, ['connect', 'close']);
    // Only a closed descriptor makes this fail: after the FIN alone it could be written for ever.
    peer.on('end', () => peer.write('x'));
    peer.resume();
    t.match((await error).code, /^(?:ECONNRESET|EPIPE)$/);
  });

  t.test('a reset that fails ends the socket nevertheless', async (t) => {
    if (calls === undefined) throw new Error('this Node gives no handles');
    const { handle, asked } = answering({ reset: -22, setNoDelay: 0 });
    const onread = { buffer: Buffer.alloc(1), callback: () => true };
    const socket = new HandleSocket(calls, handle, onread);
    const watched: Watched = { told: [], chunks: [] };
    watch(socket, watched);
    socket.resetAndDestroy();
    t.same(watched.told, [], 'not before the caller has gone on');
    await until(() => watched.told.length > 0);
    t.same(watched.told, ['close']);
    t.same(asked, ['reset', 'readStop'], 'a handle that could not be reset cannot be closed');
  });

  t.test('a socket that may refuse options is only closed when it does', (t) => {
    for (const [setNoDelay, expected] of [
      [-57, ['close']],
      [0, ['reset']],
    ] as const) {
      const { handle, asked } = answering({ reset: 0, setNoDelay });
      resetHandle(handle, () => undefined, true);
      t.same(asked, expected);
    }
    t.end();
  });

  t.test('an end by who waited for a write is one end', async (t) => {
    const { socket, peer, told } = await pair(t);
    fill(socket);
    socket.write(Buffer.from('last'), () => socket.end());
    peer.resume();
    await until(() => peer.readableEnded);
    peer.end();
    await until(() => told.includes('close'));
    t.same(told, ['connect', 'finish', 'end', 'close']);
  });

  for (const cause of [undefined, new Error('a cause')]) {
    const how = cause === undefined ? 'the end of the socket' : 'the error that ends it';
    t.test(`who waits for a write is told ${how}`, async (t) => {
      const { socket, told } = await pair(t);
      fill(socket);
      const errors: unknown[] = [];
      for (const chunk of [Buffer.from('last'), Buffer.alloc(0)]) {
        socket.write(chunk, (error) => errors.push(error));
      }
      socket.destroy(cause);
      t.same(errors, [], 'not before the caller has gone on');
      await until(() => told.includes('close'));
      t.equal(errors.length, 2);
      for (const error of errors) {
        if (cause === undefined) t.match(error, { message: 'closed before it was written' });
        else t.equal(error, cause);
      }
    });
  }

  t.test('without handles the engine does what Node documents', async (t) => {
    const script = join(import.meta.dirname, '../../support/tcp-without-handles.ts');
    const { stdout } = await promisify(execFile)(process.execPath, [script]);
    t.same(JSON.parse(stdout), { handles: false, answer: 'hello', bytesIn: 5 });
  });
}
