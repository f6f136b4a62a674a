/**
 * System calls so often that V8 optimises them.
 *
 *     ffi-child.ts           reads and writes in one function; run it with `--trace-turbo-inlining`
 *     ffi-child.ts COUNT     starts so many threads, one after the other, that make calls until V8 is about to optimise
 *                            them and end in the middle, and says how many have ended
 */
import { openSync } from 'node:fs';
import { isMainThread, Worker, workerData } from 'node:worker_threads';
import { importFfi, openLibrary } from '../../../src/proxysocket/linux/sys/library.ts';
import { Pinned } from '../../../src/proxysocket/linux/sys/memory.ts';
import { openSys } from '../../../src/proxysocket/linux/sys/sys.ts';
import { compileInPlace } from '../../../src/proxysocket/pool/worker.ts';

const ROUNDS = 200_000;
/** How threads end. */
const WAYS_TO_END = ['return', 'throw', 'exit'] as const;

interface ThreadPlan {
  readonly calls: number;
  readonly how: (typeof WAYS_TO_END)[number];
}

async function callOften(): Promise<void> {
  const sys = await openSys();
  const memory = new Pinned(sys.ffi, 1);
  const from = openSync('/dev/zero', 'r');
  const to = openSync('/dev/null', 'w');
  for (let round = 0; round < ROUNDS; round += 1) {
    sys.read(from, memory, 1);
    sys.write(to, memory, 1);
  }
}

async function startThreads(count: number): Promise<void> {
  let ended = 0;
  for (; ended < count; ended += 1) {
    // V8 begins at a number of calls that is not known, somewhere in between.
    const plan: ThreadPlan = {
      calls: 200 + Math.floor((20_000 * ended) / count),
      how: WAYS_TO_END[ended % WAYS_TO_END.length] ?? 'return',
    };
    const options = { workerData: plan, execArgv: ['--disable-warning=ExperimentalWarning'] };
    const worker = compileInPlace(() => new Worker(new URL(import.meta.url), options));
    worker.on('error', () => undefined);
    await new Promise((resolve) => worker.once('exit', resolve));
  }
  process.stdout.write(`${ended} ended`);
}

async function callAndEnd({ calls, how }: ThreadPlan): Promise<void> {
  const { c } = openLibrary(await importFfi());
  for (let call = 0; call < calls; call += 1) {
    c.close(-1);
    c.read(-1, 0n, 0);
    c.write(-1, 0n, 0);
    c.shutdown(-1, 0);
  }
  if (how === 'throw') throw new Error('the end');
  if (how === 'exit') process.exit();
}

if (!isMainThread) await callAndEnd(workerData as ThreadPlan);
else if (process.argv[2] === undefined) await callOften();
else await startThreads(Number(process.argv[2]));
