import { receiveMessageOnPort } from 'node:worker_threads';
import type { Clock } from '../../util/clock.ts';
import type { AcceptorEngine } from '../acceptor-engine.ts';
import { DescriptorLedger } from '../linux/sys/ledger.ts';
import { offerSockets } from '../core/inherited.ts';
import { canSteer } from '../linux/open-listener.ts';
import { createDataPlane } from '../linux/engine.ts';
import { LoopClock, Loop, type Pollable } from '../linux/loop.ts';
import { openProbed, ProbeFailure } from '../linux/probes.ts';
import { INTEREST } from '../linux/sys/poller.ts';
import type { Sys } from '../linux/sys/sys.ts';
import { CounterRows } from './counter-memory.ts';
import { encodeError, CONTROL, type Command, type WorkerStart } from './protocol.ts';
import { Outbox, StateReporter } from './outbox.ts';

/** A clock whose timers the loop runs. */
interface TurnClock extends Clock {
  waitMs(): number;
  tick(): void;
  run(): void;
}

interface WorkerParts {
  readonly clock?: TurnClock;
  /** Evenly distributed in [0, 1), as `Math.random`. */
  readonly random?: () => number;
  /** Default: `openProbed`. */
  readonly openSys?: typeof openProbed;
}

/**
 * The life of a worker thread: passes its probes, then waits for descriptors and commands until a command ends it.
 *
 * The loop blocks the thread, so promises and Node's own event loop do not run. Batches need both; so during a batch,
 * or while waiting for the end, the loop yields after each turn.
 */
export async function runWorker(start: WorkerStart, parts: WorkerParts = {}): Promise<void> {
  const { port, index } = start;
  const control = new Int32Array(start.control);
  const outbox = new Outbox(port, control, index === 0);
  const open = (parts.openSys ?? openProbed)(new DescriptorLedger(start.ledger), start.isProven);
  const sys = await fit(open, outbox);
  if (sys === undefined) {
    port.close();
    return;
  }
  const clock = parts.clock ?? new LoopClock();
  const loop = new Loop(sys, {
    onFault: (error) => outbox.fault(error),
    onWake() {
      clock.tick();
      outbox.subscribe();
    },
    onOpened: (sockets) => outbox.opened(sockets),
  });
  const counters = new CounterRows(index, start.rows);
  const engine = createDataPlane(loop, {
    limits: start.limits,
    clock,
    random: parts.random ?? Math.random,
    descriptorLimit: start.descriptorLimit,
    counters,
  });
  const states = index === 0 ? new StateReporter(engine, outbox) : undefined;
  const wake = sys.wake();
  let life: 'serving' | 'ending' | 'ended' = 'serving';

  /** Synchronous work is done on return: promises do not run while the loop blocks the thread. */
  const carryOut = async (command: Command): Promise<void> => {
    const { id } = command;
    try {
      switch (command.kind) {
        case 'inspect':
          return outbox.done({ id, found: engine.inspectNow(command.query) });
        case 'duplicate':
          return outbox.done({ id, fds: command.fds.map((fd) => sys.sockets.duplicate(fd)) });
        case 'limits':
          void engine.setLimits(command.limits);
          break;
        case 'apply':
          counters.assign(command.counters, command.freed);
          offerSockets(command.sockets, command.ports);
          await engine.apply(command.changes).finally(() => states?.changed(command.changes));
          break;
        case 'close':
        case 'destroy':
          life = 'ending';
          await end(engine, command);
          life = 'ended';
      }
      outbox.done({ id });
    } catch (error) {
      outbox.done({ id, error: encodeError(error) });
    }
  };

  const commands: Pollable = {
    ready() {
      wake.drain();
      for (;;) {
        const received = receiveMessageOnPort(port);
        if (received === undefined) return;
        void carryOut(received.message as Command);
      }
    },
    failed(error) {
      // A message that cannot be decoded is not a command.
      throw error;
    },
  };
  loop.watch(wake.fd, commands, INTEREST.readable);
  // Before the first check of `stop`, so that the worker can be woken.
  Atomics.store(control, CONTROL.wakeFd, wake.fd);
  outbox.post({ ready: { steers: canSteer(sys) } });

  const finished = Promise.withResolvers<void>();
  const turn = (): void => {
    for (;;) {
      states?.report();
      outbox.flush();
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
  port.close();
}

function end(
  engine: AcceptorEngine,
  command: Extract<Command, { kind: 'close' | 'destroy' }>,
): Promise<void> {
  return command.kind === 'close' ? engine.close(command.newProcess) : engine.destroy();
}

/** The system calls, once the probes have passed; undefined if one failed, which is reported. */
async function fit(opening: Promise<Sys>, outbox: Outbox): Promise<Sys | undefined> {
  try {
    return await opening;
  } catch (error) {
    if (!(error instanceof ProbeFailure)) throw error;
    outbox.post({ unfit: { probe: error.probe, reason: error.message } });
    return undefined;
  }
}
