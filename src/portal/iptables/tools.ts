/** Which programs of iptables are here, and what they can do. */
import { KpngError } from '../../errors.ts';
import type { Family } from '../../util/family.ts';
import { LOCK_WAIT_S, MAX_RULE_LIST } from '../bounds.ts';
import { ExecError, type Exec } from '../exec.ts';
import { missingText } from '../tool-failure.ts';
import { iptablesFailure, REMEDY } from './failure.ts';

/** Where iptables keeps its rules: in nf_tables, or in tables of their own. The kernel minds both. */
export type Flavor = 'nft' | 'legacy';

export interface Tools {
  readonly flavor: Flavor;
  /** `1.8.9` */
  readonly version: string;
  /** Name of the program for single rules: `iptables`, `iptables-nft` or `iptables-legacy`. */
  readonly name: string;
}

/** As found, with the reason for which these were taken. */
export interface ChosenTools extends Tools {
  readonly reason: string;
}

/** The program that reads scripts, with its flags. */
export function restore(tools: Tools, family: Family): { file: string; args: string[] } {
  return {
    file: `${programOf(tools, family)}-restore`,
    args: ['--noflush', ...waitFlags(tools.version)],
  };
}

/** The program that lists rules. */
export function save(tools: Tools, family: Family): string {
  return `${programOf(tools, family)}-save`;
}

/** `iptables-nft`, or `ip6tables-nft` */
export function programOf({ name }: Tools, family: Family): string {
  return family === 4 ? name : name.replace(/^ip/, 'ip6');
}

/**
 * How long to wait for others that change rules, and how often to look meanwhile. Restoring knows how to
 * wait since 1.6.2; since 1.8.9 it needs not to be told how often to look.
 */
export function waitFlags(version: string): string[] {
  if (!atLeast(version, [1, 6, 2])) return [];
  const wait = ['-w', String(LOCK_WAIT_S)];
  return atLeast(version, [1, 8, 9]) ? wait : [...wait, '-W', '100000'];
}

function atLeast(version: string, wanted: readonly number[]): boolean {
  const parts = version.split('.').map(Number);
  for (const [index, least] of wanted.entries()) {
    const part = parts[index] ?? 0;
    if (part !== least) return part > least;
  }
  return true;
}

/**
 * Finds the programs of a flavour. `auto`: where both are installed, the one whose rules kubelet's are
 * among; else the one with more rules; else the one that `iptables` on the PATH is. Rejects with
 * KPNG_PORTAL_TOOL_MISSING when there are none, or none of that flavour.
 */
export async function findTools(exec: Exec, wanted: Flavor | 'auto'): Promise<ChosenTools> {
  const missing = (name: string, what: string): KpngError =>
    new KpngError('KPNG_PORTAL_TOOL_MISSING', `looking for ${what}: ${missingText(name, REMEDY)}`);
  const [plain, nft, legacy] = await Promise.all(
    ['iptables', 'iptables-nft', 'iptables-legacy'].map((name) => probe(exec, name)),
  );
  if (wanted !== 'auto') {
    const own = wanted === 'nft' ? nft : legacy;
    const found = own ?? (plain?.flavor === wanted ? plain : undefined);
    if (found !== undefined) return { ...found, reason: 'it was asked for' };
    throw missing(`iptables-${wanted}`, `the programs of --iptables-flavor ${wanted}`);
  }
  if (nft !== undefined && legacy !== undefined) return compare(exec, plain, nft, legacy);
  const only = plain ?? nft ?? legacy;
  if (only !== undefined) return { ...only, reason: 'no other flavour is installed' };
  throw missing('iptables', 'the programs of iptables');
}

async function compare(
  exec: Exec,
  plain: Tools | undefined,
  nft: Tools,
  legacy: Tools,
): Promise<ChosenTools> {
  const [ofNft, ofLegacy] = await Promise.all([survey(exec, nft), survey(exec, legacy)]);
  if (ofNft.kubernetes !== ofLegacy.kubernetes) {
    const reason = 'the chains of Kubernetes are there';
    return { ...(ofNft.kubernetes ? nft : legacy), reason };
  }
  if (ofNft.rules !== ofLegacy.rules) {
    return { ...(ofNft.rules > ofLegacy.rules ? nft : legacy), reason: 'it has more rules' };
  }
  return { ...(plain?.flavor === 'legacy' ? legacy : nft), reason: 'iptables on the PATH is that' };
}

/** What there is of a flavour's rules. Without a table's name, no table is made by looking. */
async function survey(exec: Exec, tools: Tools): Promise<{ kubernetes: boolean; rules: number }> {
  const texts = await Promise.all(
    ([4, 6] as const).map(async (family) => {
      try {
        const { stdout } = await exec({
          file: save(tools, family),
          args: [],
          maxOutput: MAX_RULE_LIST,
        });
        return stdout;
      } catch (error) {
        // What cannot be read says nothing; writing will tell why.
        if (error instanceof ExecError) return '';
        throw error;
      }
    }),
  );
  return {
    kubernetes: texts.some((text) => /^:KUBE-/m.test(text)),
    rules: texts.reduce((sum, text) => sum + (text.match(/^-A /gm)?.length ?? 0), 0),
  };
}

/** Undefined when it is not installed. */
async function probe(exec: Exec, name: string): Promise<Tools | undefined> {
  try {
    const { stdout } = await exec({ file: name, args: ['--version'] });
    const [, version = '1.4.11', words] = /\bv(\d+(?:\.\d+)+)(?: \((\w+)\))?/.exec(stdout) ?? [];
    return { name, version, flavor: words === 'nf_tables' ? 'nft' : 'legacy' };
  } catch (error) {
    if (error instanceof ExecError && error.failure === 'missing') return undefined;
    throw iptablesFailure(error, `asking ${name} for its version`);
  }
}
