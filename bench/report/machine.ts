import { availableParallelism, cpus, release, totalmem, type } from 'node:os';

/** What the figures were measured on. */
export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memoryGiB: number;
  readonly system: string;
  readonly node: string;
}

export function machine(): Machine {
  return {
    cpu: cpus()[0]?.model.trim() ?? 'unknown CPU',
    cores: availableParallelism(),
    memoryGiB: Math.round(totalmem() / 1024 ** 3),
    system: `${type()} ${release()}`,
    node: process.version,
  };
}

/** One line for people. */
export function describeMachine(it: Machine): string {
  return `${it.cpu}, ${it.cores} cores, ${it.memoryGiB} GiB, ${it.system}, Node ${it.node}`;
}
