import { join } from 'node:path';
import { startScript } from '../support/dialogue.ts';
import type { Fed } from './feed.ts';
import type { BenchNetwork } from './network.ts';
import type { ColdStart, Moment, Subject } from './subject.ts';
import type { WorkerRequest, WorkerSettings } from './worker.ts';

/** This project in a namespace, with one of its portals. */
export function own(
  network: BenchNetwork,
  { name, flags }: WorkerSettings & { readonly name: string },
): Subject {
  const settings: WorkerSettings = { flags };
  const script = join(import.meta.dirname, 'worker.ts');
  // With the environment of the image and the systemd unit.
  const worker = startScript(script, settings, network.command('env', 'MALLOC_ARENA_MAX=1'));
  const ask = <Answer>(request: WorkerRequest): Promise<Answer> => worker.ask<Answer>(request);
  let doneAt: Moment | undefined;
  return {
    name,
    pid: worker.pid,
    processes: () => ask<number>({ do: 'processes' }),
    start: (services) => ask<ColdStart>({ do: 'start', services }),
    async change(kind, n) {
      const change = await ask<Fed>({ do: 'change', kind, n });
      doneAt = change.doneAt;
      return change.at;
    },
    settled: async () => doneAt,
    // By itself, so that Node keeps the code of its threads: stripping types takes 40 MB.
    close: () => worker.end(),
  };
}
