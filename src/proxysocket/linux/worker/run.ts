import { receiveMessageOnPort } from 'node:worker_threads';
import type { Clock } from '../../../util/clock.ts';
import { canSteer } from '../can-steer.ts';
import { createDataPlane } from '../data-plane.ts';
import { FormerListeners } from '../former-listeners.ts';
import { Loop, type Pollable } from '../loop.ts';
import { LoopClock } from '../loop-clock.ts';
import { PROBES } from '../probes/all.ts';
import { newSys } from '../probes/basics.ts';
import { ProbeFailure, runProbes, type Probe } from '../probes/probe.ts';
import { DescriptorLedger } from '../../core/descriptor-ledger.ts';
import { INTEREST } from '../sys/poller.ts';
import type { Sys } from '../sys/sys.ts';
import { BookKeeper } from '../../threads/book-keeper.ts';
import { carryOut, type CommandParts } from '../../threads/carry-out.ts';
import { CounterSlots } from '../../threads/counter-slots.ts';
import { Outbox } from '../../threads/outbox.ts';
import { CONTROL, type Command, type WorkerStart } from '../../threads/protocol.ts';

/** A clock whose timers run when the loop says so. */
export interface TurnClock extends Clock {
  waitMs(): number;
  tick(): void;
  run(): void;
}

export interface WorkerParts {
  readonly clock?: TurnClock;
  /** Evenly distributed in [0, 1), as `Math.random`. */
  readonly random?: () => number;
  readonly probes?: readonly Probe[];
}

/**
 * The life of a worker thread: passes its probes, then waits for descriptors and commands until it is
 * told to end.
 *
 * The loop blocks the thread, so that promises and Node's own event loop stand still. Batches of
 * changes need both; so while one is being worked on, or the end is being waited for, the loop steps
 * aside after each turn.
 */
export async function runWorker(start: WorkerStart, parts: WorkerParts = {}): Promise<void> {
  const { port } = start;
  const control = new Int32Array(start.control);
  const outbox = new Outbox(port, control);
  const sys = await fit(parts.probes ?? PROBES, new DescriptorLedger(start.ledger), outbox);
  if (sys === undefined) {
    port.close();
    return;
  }
  const former =
    start.orphans &&
    new FormerListeners(sys, new DescriptorLedger(start.orphans), start.formerPlaces);
  const clock = parts.clock ?? new LoopClock();
  const loop = new Loop(sys, {
    onFault: (error) => outbox.fault(error),
    onWake() {
      clock.tick();
      outbox.subscribe();
    },
    ...(former !== undefined && { former }),
  });
  const slots = new CounterSlots((memory) => outbox.block(memory));
  const engine = createDataPlane(loop, {
    limits: start.limits,
    clock,
    random: parts.random ?? Math.random,
    descriptorLimit: start.descriptorLimit,
    counters: slots,
    formerPort: (key) => start.formerPorts.get(key),
  });
  const keeper = new BookKeeper(engine, slots, outbox);
  const wake = sys.wake();
  let ending = false;
  let ended = false;
  let syncSeen = 0;

  const commandParts: CommandParts = {
    engine,
    keeper,
    outbox,
    closeFormer: () => former?.closeRest(),
    onEnding: () => (ending = true),
    onEnded: () => (ended = true),
  };

  const commands: Pollable = {
    ready() {
      wake.drain();
      syncSeen = Atomics.load(control, CONTROL.syncAsked);
      for (;;) {
        const received = receiveMessageOnPort(port);
        if (received === undefined) return;
        void carryOut(received.message as Command, commandParts);
      }
    },
    failed(error) {
      // What cannot even be taken from the port is no command.
      throw error;
    },
  };
  loop.watch(wake.fd, commands, INTEREST.readable);
  // Before the first look at `stop`, so that whoever sets it can wake us.
  Atomics.store(control, CONTROL.wakeFd, wake.fd);
  outbox.tell({ ready: { steers: canSteer(sys) } });

  /** Tells everything, and that it has been told. */
  const report = (): void => {
    keeper.report();
    outbox.flush();
    if (engine.isBusy || Atomics.load(control, CONTROL.syncDone) === syncSeen) return;
    Atomics.store(control, CONTROL.syncDone, syncSeen);
    Atomics.notify(control, CONTROL.syncDone);
  };

  const finished = Promise.withResolvers<void>();
  const turn = (): void => {
    for (;;) {
      report();
      if (ended || Atomics.load(control, CONTROL.stop) !== 0) {
        finished.resolve();
        return;
      }
      loop.turn(engine.isBusy ? 0 : clock.waitMs());
      clock.run();
      if (engine.isBusy || ending) {
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

/** The system calls, once the probes have passed; undefined, and told, when one has failed. */
async function fit(
  probes: readonly Probe[],
  ledger: DescriptorLedger,
  outbox: Outbox,
): Promise<Sys | undefined> {
  try {
    return newSys(await runProbes(probes, { ledger }));
  } catch (error) {
    if (!(error instanceof ProbeFailure)) throw error;
    outbox.tell({ unfit: { probe: error.probe, reason: error.message } });
    return undefined;
  }
}
