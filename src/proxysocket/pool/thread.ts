/** The module of a worker thread of the `linux` engine. */
import { setImmediate } from 'node:timers/promises';
import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { offerSockets } from '../../util/inherited.ts';
import { INTEREST, Loop, type Pollable } from '../linux/loop.ts';
import { createDataPlane, probeEngine } from '../linux/engine.ts';
import { DescriptorLedger, Pinned } from '../linux/sys/memory.ts';
import { openSys } from '../linux/sys/sys.ts';
import { sharedCounters } from './counter-memory.ts';
import {
  CONTROL,
  encodeError,
  Outbox,
  publishFault,
  type NumberedCommand,
  type WorkerStart,
} from './protocol.ts';

/**
 * The life of a worker thread: passes its probes, then carries out commands until one ends it. Rejects with an
 * UnfitError. The loop blocks the thread, so promises do not run. Batches need them; so during a batch, or while
 * waiting for the end, the loop yields after each turn.
 */
async function runWorker(start: WorkerStart): Promise<void> {
  const { limits, descriptorLimit, wakeFd } = start;
  const port = parentPort;
  if (port === null) throw new Error('not a worker thread');
  const control = new Int32Array(start.control);
  const outbox = new Outbox(port, control);
  const sys = await openSys(new DescriptorLedger(start.ledger));
  if (!start.isProven) await probeEngine(sys);
  const loop = new Loop(sys, (error) => publishFault('internal-error', error));
  const counters = sharedCounters((name, slot, memory) => {
    // At once: the main thread has to know it when a client gets an answer.
    outbox.post({ kind: 'counts', name, slot, memory });
  });
  const random = Math.random;
  const { clock } = loop;
  const engine = createDataPlane(loop, { limits, clock, random, descriptorLimit, counters });
  const counter = new Pinned(sys.ffi, 8);
  let life = 'serving' as 'serving' | 'close' | 'destroy' | 'ended';

  /** Synchronous work is done on return: promises do not run while the loop blocks the thread. */
  const carryOut = async (command: NumberedCommand): Promise<void> => {
    const { id } = command;
    try {
      switch (command.kind) {
        case 'inspect':
          return outbox.done({ id, found: engine.inspectNow(command.query) });
        case 'limits':
          void engine.setLimits(command.limits);
          break;
        case 'apply':
          offerSockets(command.sockets);
          await engine.apply(command.changes);
          break;
        case 'close':
        case 'destroy':
          life = command.kind;
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
      outbox.subscribe();
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

  for (;;) {
    outbox.flush(engine.descriptors.used);
    if (life === 'ended' || Atomics.load(control, CONTROL.stop) !== 0) break;
    // Only a close has anything to wait for: the last relays.
    loop.turn(engine.isBusy || life === 'destroy' ? 0 : undefined);
    if (engine.isBusy || life !== 'serving') await setImmediate();
  }
  loop.end();
}

await runWorker(workerData as WorkerStart);
