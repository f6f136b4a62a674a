/** What every load is given, and what it answers. */
import type { BackendPorts } from '../../support/backend.ts';
import { runProgram } from '../program.ts';
import { cpuUse, type CpuUse } from '../../support/process-usage.ts';

/** One measurement of one peer. */
export interface LoadRun {
  /** Where the services are. */
  readonly address: string;
  /** How long to measure. Whole seconds, unless clients of this project do it. */
  readonly seconds: number;
  /** The processes of the proxy. */
  readonly pids: readonly number[];
  /** Ports of the servers of this project. Default: those of ports.ts. */
  readonly ports?: Partial<BackendPorts>;
  /** The command line that runs a program where clients are. */
  readonly client: (...words: readonly string[]) => string[];
}

/** Microseconds. */
export interface Latency {
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly p999: number;
}

export interface Sample {
  /** Everything that was done: bytes, requests, datagrams. What CPU is divided by. */
  readonly total: number;
  /** The same for a second. */
  readonly rate: number;
  /** Seconds, while it was done. */
  readonly cpu: CpuUse;
  readonly latency?: Latency;
  /** Share of what was sent that did not arrive. */
  readonly lost?: number;
}

/** How figures are printed: what they are multiplied with, and what they are called then. */
interface Unit {
  readonly name: string;
  readonly factor: number;
}

export interface DataLoad {
  /** For flags and the JSON. */
  readonly word: string;
  readonly title: string;
  readonly protocol: 'TCP' | 'UDP';
  /** The command that it needs on the PATH, which has the name of its Debian package. */
  readonly tool?: string;
  readonly rate: Unit;
  /** Of CPU seconds for one unit of `total`. */
  readonly cpu: Unit;
  readonly run: (how: LoadRun) => Promise<Sample>;
  /** Does the same with clients of this project where the tool is missing. */
  readonly without?: (how: LoadRun) => Promise<Sample>;
}

/** The units of loads that are counted in requests, datagrams and the like. */
export function unitsOf(one: string): Pick<DataLoad, 'rate' | 'cpu'> {
  return { rate: { name: 'k/s', factor: 1e-3 }, cpu: { name: `µs/${one}`, factor: 1e6 } };
}

/** The units of loads that are counted in bytes. */
export const BYTES: Pick<DataLoad, 'rate' | 'cpu'> = {
  rate: { name: 'GB/s', factor: 1e-9 },
  cpu: { name: 'ms/GB', factor: 1e12 },
};

/** Runs a tool to its end, with what was used meanwhile. */
export async function runTool(
  how: LoadRun,
  words: readonly string[],
): Promise<{ readonly output: string; readonly cpu: CpuUse }> {
  const before = cpuUse(how.pids);
  const output = await runProgram(how.client(...words), (how.seconds + 10) * 1000);
  return { output, cpu: cpuUse(how.pids, before) };
}
