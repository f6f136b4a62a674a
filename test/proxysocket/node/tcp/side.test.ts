import { EventEmitter } from 'node:events';
import type { OnReadOpts, Socket } from 'node:net';
import * as fc from 'fast-check';
import { CopyMemory } from '../../../../src/proxysocket/node/tcp/buffers.ts';
import { Side } from '../../../../src/proxysocket/node/tcp/side.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { holds } from '../../../support/property.ts';
import t from 'tap';

const MB = 1024 * 1024;

/**
 * The socket of a side. As a source it reads into the buffer that it was given last, as Node
 * does; as a sink it keeps what the kernel does not take, by reference, until it is asked to.
 */
class FakeSocket extends EventEmitter {
  destroyed = false;
  errored: Error | null = null;
  writable = true;
  ended = false;
  reading = true;
  takes = true;
  readonly arrived: Buffer[] = [];
  readonly #held: { chunk: Buffer; flushed: (() => void) | undefined }[] = [];
  #buffer: Buffer | undefined;

  get writableLength(): number {
    return this.#held.reduce((sum, { chunk }) => sum + chunk.length, 0);
  }

  /** Reads `size` bytes of `value`, or as many as the buffer holds; returns how many. */
  receive(onread: OnReadOpts, size: number, value: number): number {
    if (!this.reading) return 0;
    const next = onread.buffer as () => Buffer;
    this.#buffer ??= next();
    const length = Math.min(size, this.#buffer.length);
    this.#buffer.fill(value, 0, length);
    if (!onread.callback(length, this.#buffer)) this.reading = false;
    this.#buffer = next();
    return length;
  }

  resume(): void {
    this.reading = true;
  }

  write(chunk: Buffer, flushed?: () => void): void {
    if (this.takes && this.#held.length === 0) {
      this.arrived.push(Buffer.from(chunk));
      flushed?.();
    } else {
      this.#held.push({ chunk, flushed });
    }
  }

  /** The kernel takes everything. */
  flush(): void {
    for (const { chunk, flushed } of this.#held.splice(0)) {
      this.arrived.push(Buffer.from(chunk));
      flushed?.();
    }
  }

  end(): void {
    this.ended = true;
  }

  destroy(): void {
    this.destroyed = true;
  }
}

function memory(bulkBufferBudget = 8 * MB): CopyMemory {
  return new CopyMemory(new FakeClock(), { bulkBufferBudget, keepAliveMs: 1000 });
}

class FakeSide extends Side {
  readonly fake = new FakeSocket();
  readonly socket = this.fake as unknown as Socket;

  protected keep(): boolean {
    return false;
  }

  protected onError(): void {}

  protected onEnd(): void {}

  protected onClose(): void {}
}

class Flow {
  readonly side: FakeSide;
  readonly source: FakeSocket;
  readonly sink: FakeSocket;
  readonly #sent: Buffer[] = [];
  readonly counters = { bytesIn: 0, bytesOut: 0 };

  constructor(shared: CopyMemory) {
    this.side = new FakeSide(shared, true);
    const peer = new FakeSide(shared, false);
    this.source = this.side.fake;
    this.sink = peer.fake;
    this.side.pipe(peer, this.counters);
  }

  receive(size: number, value: number): number {
    const length = this.source.receive(this.side.onread, size, value);
    if (length > 0) this.#sent.push(Buffer.alloc(length, value));
    return length;
  }

  get intact(): boolean {
    return Buffer.concat(this.sink.arrived).equals(Buffer.concat(this.#sent));
  }
}

t.test('whatever is read and whenever it is taken, it arrives as it was', async (t) => {
  const steps = fc.array(
    fc.record({
      flow: fc.nat({ max: 3 }),
      size: fc.oneof(fc.integer({ min: 1, max: 20_000 }), fc.integer({ min: 1, max: MB })),
      takes: fc.boolean(),
      flush: fc.boolean(),
    }),
    { maxLength: 80 },
  );
  const property = fc.property(fc.constantFrom(0, MB / 2, 8 * MB), steps, (budget, all) => {
    const shared = memory(budget);
    const flows = Array.from({ length: 4 }, () => new Flow(shared));
    for (const [index, { flow, size, takes, flush }] of all.entries()) {
      const subject = flows[flow];
      if (subject === undefined) continue;
      subject.sink.takes = takes;
      subject.receive(size, index + 1);
      if (subject.sink.writableLength > 0 && subject.source.reading) return false;
      if (flush) subject.sink.flush();
    }
    for (const { sink, side } of flows) {
      sink.flush();
      side.free();
    }
    if (shared.bulk.used !== 0 || shared.stalled.size > 0) return false;
    return flows.every((flow) => flow.intact && flow.counters.bytesIn === flow.side.bytes);
  });
  holds(t, property);
});

t.test('a private buffer is kept while a write from it waits', async (t) => {
  const shared = memory();
  const [flow, other] = [new Flow(shared), new Flow(shared)];
  flow.receive(40_000, 1);
  for (let index = 0; index < 15; index += 1) flow.receive(100, 2);
  flow.sink.takes = false;
  flow.receive(100, 3);
  t.equal(shared.bulk.used, MB, 'the sixteenth small read waits in it');
  other.receive(40_000, 4);
  other.receive(MB, 5);
  flow.sink.flush();
  t.ok(flow.intact && other.intact);
  flow.sink.takes = true;
  flow.receive(100, 6);
  t.equal(shared.bulk.used, MB, 'given back when the next one is through');
});

t.test('the FIN: a shutdown, or the end of the socket when it is the last one', async (t) => {
  const shared = memory();
  const first = new Flow(shared);
  first.receive(50_000, 1);
  first.side.end(false);
  t.match(first.sink, { ended: true, destroyed: false });
  t.equal(shared.bulk.used, 0, 'its buffer is free before the other half ends');

  const last = new Flow(shared);
  last.side.end(true);
  t.match(last.sink, { ended: false, destroyed: true });

  const waiting = new Flow(shared);
  waiting.sink.takes = false;
  waiting.receive(50_000, 1);
  waiting.side.end(true);
  t.match(waiting.sink, { ended: true, destroyed: false }, 'what waits is not thrown away');

  const small = new Flow(shared);
  small.side.keepSmall();
  small.receive(50_000, 1);
  t.equal(shared.bulk.used, MB, 'only what the flow that waits has');
  const late = new Flow(shared);
  late.receive(50_000, 1);
  late.side.keepSmall();
  late.receive(50_000, 2);
  t.equal(shared.bulk.used, MB, 'also if it had a buffer before');

  const bulk = new Flow(shared);
  bulk.receive(50_000, 1);
  bulk.sink.takes = false;
  bulk.receive(50_000, 2);
  bulk.side.end(false);
  t.equal(shared.bulk.used, 2 * MB, 'nor is the buffer that it waits in given away');
  bulk.sink.flush();
  for (const { side } of [waiting, bulk]) side.free();
  t.equal(shared.bulk.used, 0);
});
