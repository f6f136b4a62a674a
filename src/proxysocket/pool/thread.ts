import { parentPort, receiveMessageOnPort } from 'node:worker_threads';
import { offerSockets } from '../core/inherited.ts';
import { canSteer } from '../linux/open-listener.ts';
import { createDataPlane } from '../linux/engine.ts';
import { LoopClock, Loop, type Pollable } from '../linux/loop.ts';
import { openProbed } from '../linux/probes.ts';
import { DescriptorLedger, Pinned } from '../linux/sys/memory.ts';
import { INTEREST, openWake } from '../linux/sys/poller.ts';
import { sharedCounters } from './counter-memory.ts';
import { encodeError, CONTROL, type NumberedCommand, type WorkerStart } from './protocol.ts';
import { Outbox } from './outbox.ts';

/** For tests. */
interface WorkerParts {
  readonly clock?: LoopClock;
  readonly openSys?: typeof openProbed;
}

/**
 * The life of a worker thread: passes its probes, then carries out commands until one ends it. Rejects with an
 * UnfitError. The loop blocks the thread, so promises do not run. Batches need them; so during a batch, or while
 * waiting for the end, the loop yields after each turn.
 */
export async function runWorker(start: WorkerStart, parts: WorkerParts = {}): Promise<void> {
  const { index, limits, descriptorLimit } = start;
  const port = parentPort;
  if (port === null) throw new Error('not a worker thread');
  const control = new Int32Array(start.control);
  const outbox = new Outbox(port, control, index === 0);
  const open = parts.openSys ?? openProbed;
  const sys = await open(new DescriptorLedger(start.ledger), start.isProven);
  const clock = parts.clock ?? new LoopClock();
  const loop = new Loop(sys, {
    onFault: (error) => outbox.fault(error),
    onWake() {
      clock.tick();
      outbox.subscribe();
    },
    onOpened: (sockets) => outbox.opened(sockets),
  });
  const counters = sharedCounters((slot, memory) => {
    // At once: the main thread has to know it when a client gets an answer.
    outbox.post({ kind: 'counts', slot, memory });
  });
  const random = Math.random;
  const engine = createDataPlane(loop, { limits, clock, random, descriptorLimit, counters });
  const wakeFd = openWake(sys);
  const counter = new Pinned(sys.ffi, 8);
  let life: 'serving' | 'ending' | 'ended' = 'serving';

  /** Synchronous work is done on return: promises do not run while the loop blocks the thread. */
  const carryOut = async ({ id, command }: NumberedCommand): Promise<void> => {
    try {
      switch (command.kind) {
        case 'start':
          return outbox.done({ id, steers: canSteer(sys) });
        case 'inspect':
          return outbox.done({ id, found: engine.inspectNow(command.query) });
        case 'duplicate':
          return outbox.done({ id, fd: sys.duplicate(command.fd) });
        case 'limits':
          void engine.setLimits(command.limits);
          break;
        case 'apply':
          offerSockets(command.sockets, command.ports);
          await engine.apply(command.changes).finally(() => outbox.applied(command.changes));
          break;
        case 'close':
        case 'destroy':
          life = 'ending';
          await (command.kind === 'close' ? engine.close(command.newProcess) : engine.destroy());
          life = 'ended';
      }
      outbox.done({ id });
    } catch (error) {
      outbox.done({ id, error: encodeError(error) });
    }
  };

  const commands: Pollable = {
    ready() {
      sys.read(wakeFd, counter, counter.length);
      for (;;) {
        const received = receiveMessageOnPort(port);
        if (received === undefined) return;
        void carryOut(received.message as NumberedCommand);
      }
    },
    failed(error) {
      // A message that cannot be decoded is not a command.
      throw error;
    },
  };
  loop.watch(wakeFd, commands, INTEREST.readable);
  // Before the first check of `stop`, and before commands that were sent earlier, so that no one fails to wake the worker.
  Atomics.store(control, CONTROL.wakeFd, wakeFd);
  commands.ready(0);

  const finished = Promise.withResolvers<void>();
  const turn = (): void => {
    for (;;) {
      outbox.flush(engine);
      if (life === 'ended' || Atomics.load(control, CONTROL.stop) !== 0) {
        finished.resolve();
        return;
      }
      loop.turn(engine.isBusy ? 0 : clock.waitMs());
      clock.run();
      if (engine.isBusy || life !== 'serving') {
        setImmediate(turn);
        return;
      }
    }
  };
  turn();
  await finished.promise;
  loop.end();
}
