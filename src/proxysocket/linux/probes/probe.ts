import type { DescriptorLedger } from '../../core/descriptor-ledger.ts';
import type { EpollLayout } from '../sys/layout.ts';
import type { FfiModule, Library } from '../sys/library.ts';

/** What probes find out, one after another, for those behind them. */
export interface Findings {
  readonly ledger: DescriptorLedger;
  ffi?: FfiModule;
  lib?: Library;
  epollLayout?: EpollLayout | undefined;
}

/** One thing that has to be true before clients are entrusted to system calls. */
export interface Probe {
  /** As it stands in the log. */
  readonly name: string;
  /** Throws, or rejects, with the reason when it is not so. */
  check(findings: Findings): void | Promise<void>;
}

/** The first probe that failed. */
export class ProbeFailure extends Error {
  override readonly name = 'ProbeFailure';
  readonly probe: string;

  constructor(probe: string, cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause), { cause });
    this.probe = probe;
  }
}

/** Rejects with a ProbeFailure at the first probe that fails; those behind it are not tried. */
export async function runProbes(probes: readonly Probe[], findings: Findings): Promise<Findings> {
  for (const probe of probes) {
    try {
      await probe.check(findings);
    } catch (error) {
      throw new ProbeFailure(probe.name, error);
    }
  }
  return findings;
}

/** Throws unless two values are the same. */
export function expect(what: string, actual: unknown, expected: unknown): void {
  if (actual !== expected) {
    throw new Error(`${what} is ${String(actual)}, not ${String(expected)}`);
  }
}

/** What a probe before this one has found. */
export function found<T>(value: T | undefined, what: string): T {
  if (value === undefined) throw new Error(`${what} is not there`);
  return value;
}
