/** Why a target is missed, in words, from where the CPU of both goes. */
import { threeDigits } from '../../report/stats.ts';
import { PROGRAM_GROUPS } from '../profile.ts';
import type { DataReport, Profile } from '../result.ts';
import { PEER_TITLES, titleOf } from './tables.ts';
import { verdicts, type Parts, type Verdict } from './targets.ts';

/** One line for each target of CPU that is missed. */
export function reasonLines(report: DataReport): string[] {
  return verdicts(report)
    .filter(({ met }) => !met)
    .flatMap((verdict) => {
      const { load, engine, against, ratio, limit, parts } = verdict;
      if (parts === undefined) return [];
      const who = `${titleOf(report, load)}, *ours, ${engine}*, ${ratio.toFixed(2)} of ${PEER_TITLES[against] ?? against} instead of ${limit}`;
      const profile = report.profiles.find((each) => each.load === load && each.peer === engine);
      return [`${who}: ${difference(parts)} ${verdictOnKernel(verdict, parts)}${largest(profile)}`];
    });
}

/** Which part of the CPU is more than the other one's, and which is less. */
function difference({ mine, other }: Record<'mine' | 'other', Parts>): string {
  const part = (of: number, than: number): string =>
    `${threeDigits(Math.abs(of - than))} ${of < than ? 'less' : 'more'}`;
  return (
    `the program itself takes ${part(mine.user, other.user)} than the other one, ` +
    `and the kernel for it ${part(mine.kernel, other.kernel)}.`
  );
}

/** Whether a program that took nothing would meet the target, with the work that the kernel has now. */
function verdictOnKernel(
  { limit }: Verdict,
  { mine, other }: Record<'mine' | 'other', Parts>,
): string {
  const kernelAlone = mine.kernel / (other.user + other.kernel);
  return kernelAlone > limit
    ? `The kernel's part alone is ${kernelAlone.toFixed(2)}, so only less work in the kernel would meet it.`
    : `The kernel's part alone is ${kernelAlone.toFixed(2)}; what is above the target is the program's own.`;
}

/** The largest shares of both parts. */
function largest(profile: Profile | undefined): string {
  if (profile === undefined) return '';
  const own = (inProgram: boolean): string =>
    Object.entries(profile.shares)
      .filter(([name]) => PROGRAM_GROUPS.has(name) === inProgram)
      .slice(0, 2)
      .map(([name, share]) => `${name} (${(100 * share).toFixed(0)} %)`)
      .join(' and ');
  return ` Most of all its CPU goes into ${own(true)} in the program, and ${own(false)} in the kernel.`;
}
