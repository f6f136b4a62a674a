import { FAMILIES, type Family } from '../../util/family.ts';
import { LOCK_WAIT_S, MAX_RULE_LIST, WRITE_TIMEOUT_MS } from '../bounds.ts';
import {
  type Diagnosis,
  type Exec,
  ExecError,
  NOT_PERMITTED,
  type ToolError,
  toolFailure,
} from '../exec.ts';

/** The iptables programs have no translations. These are the messages of both flavours. */
const DIAGNOSES: readonly Diagnosis[] = [
  {
    pattern: /holding the xtables lock|Can't lock /,
    code: 'KPNG_PORTAL_LOCKED',
    advice: 'another program is changing the rules; `fuser -v /run/xtables.lock` shows which',
  },
  {
    pattern: /can't open lock file .*(?:Read-only|No such file)/,
    code: 'KPNG_PORTAL_FAILED',
    advice: 'mount /run/xtables.lock of the host into the container, so that all take turns',
  },
  NOT_PERMITTED,
  {
    pattern:
      /Table does not exist|unable to initialize table|TABLE_ADD failed|Protocol not supported|Address family not supported|is incompatible/,
    code: 'KPNG_PORTAL_UNSUPPORTED',
    advice:
      'the kernel has no such table for this flavour of iptables; try the other --iptables-flavor, or another --portal',
  },
  {
    pattern: /unknown option|unrecognized option|Couldn't load|No chain\/target\/match/,
    code: 'KPNG_PORTAL_UNSUPPORTED',
    blame: 'content',
    advice: 'iptables 1.6.2 or later, and the kernel’s modules for it, are needed',
  },
];

/** The error for a failed run. `doing`: the task; `stdin`: its input, as older programs report only a line number. */
export function iptablesFailure(cause: unknown, doing: string, stdin = ''): ToolError {
  return toolFailure(cause, doing, {
    program: cause instanceof ExecError ? (cause.command.split(' ')[0] ?? '') : 'iptables',
    remedy: 'install the package iptables, or use another --portal',
    diagnoses: DIAGNOSES,
    excerpt: ({ stderr }) => {
      const noise = /^(?:#|Try `|Error occurred|Ignoring deprecated|Can't lock)/;
      const lines = stderr.split('\n').map((line) => line.trim());
      const some = lines.filter((line) => line !== '' && !noise.test(line));
      const reason = some.find((line) => !line.endsWith(':')) ?? some[0] ?? '';
      const [, number] = /\bline:? (\d+)\b/.exec(stderr) ?? [];
      const about = stdin.split('\n')[Number(number) - 1] ?? '';
      const parts = about === '' ? [reason] : [reason, about];
      return parts.map((part) => JSON.stringify(part.slice(0, 200))).join(' about ');
    },
  });
}

/** Where iptables keeps its rules: in nf_tables or in legacy tables. The kernel applies both. */
export type Flavor = 'nft' | 'legacy';

export interface Tools {
  readonly flavor: Flavor;
  /** `1.8.9` */
  readonly version: string;
  /** Name of the program for single rules: `iptables`, `iptables-nft` or `iptables-legacy`. */
  readonly name: string;
}

/** Flags for waiting for the lock. iptables-restore has them since 1.6.2, and polls by itself since 1.8.9. */
export function waitFlags(version: string): string[] {
  const wait = ['-w', String(LOCK_WAIT_S)];
  const polls = version.localeCompare('1.8.9', 'en', { numeric: true }) >= 0;
  return polls ? wait : [...wait, '-W', '100000'];
}

/**
 * Finds the programs of a flavour. `auto` with both installed: the flavour with kubelet's chains, else with more
 * rules, else that of `iptables`. Rejects with KPNG_PORTAL_TOOL_MISSING.
 */
export async function findTools(exec: Exec, wanted: Flavor | 'auto') {
  const [plain, nft, legacy] = await Promise.all(
    ['iptables', 'iptables-nft', 'iptables-legacy'].map((name) => probe(exec, name)),
  );
  const choose = async (): Promise<[found: Tools | undefined, reason: string]> => {
    if (wanted !== 'auto') {
      const named = wanted === 'nft' ? nft : legacy;
      const found = named ?? (plain?.flavor === wanted ? plain : undefined);
      return [found, '--iptables-flavor selects it'];
    }
    if (nft === undefined || legacy === undefined) {
      return [plain ?? nft ?? legacy, 'no other flavour is installed'];
    }
    const [ofNft, ofLegacy] = await Promise.all([survey(exec, nft), survey(exec, legacy)]);
    if (ofNft.kubernetes !== ofLegacy.kubernetes) {
      return [ofNft.kubernetes ? nft : legacy, 'it has the chains of Kubernetes'];
    }
    if (ofNft.rules !== ofLegacy.rules) {
      return [ofNft.rules > ofLegacy.rules ? nft : legacy, 'it has more rules'];
    }
    return [plain?.flavor === 'legacy' ? legacy : nft, 'it is iptables on the PATH'];
  };
  const [found, reason] = await choose();
  if (found !== undefined) return { ...found, reason };
  const file = wanted === 'auto' ? 'iptables' : `iptables-${wanted}`;
  const what = wanted === 'auto' ? file : `--iptables-flavor ${wanted}`;
  const missing = new ExecError('missing', { file, args: [] });
  throw iptablesFailure(missing, `looking for the programs of ${what}`);
}

/** The existing rules of a flavour. */
async function survey(exec: Exec, tools: Tools): Promise<{ kubernetes: boolean; rules: number }> {
  const texts = await Promise.all(
    // Unreadable: writing will report the reason.
    FAMILIES.map((family) => saveRules(exec, tools, family).catch(() => '')),
  );
  return {
    kubernetes: texts.some((text) => /^:KUBE-/m.test(text)),
    rules: texts.reduce((sum, text) => sum + (text.match(/^-A /gm)?.length ?? 0), 0),
  };
}

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

/** Runs a script in a family. Rejects with a `ToolError`. `doing` is for its message. */
export async function restoreRules(
  exec: Exec,
  tools: Tools,
  family: Family,
  stdin: string,
  doing: string,
): Promise<void> {
  const file = `${programOf(tools, family)}-restore`;
  const args = ['--noflush', ...waitFlags(tools.version)];
  try {
    await exec({ file, args, stdin, timeoutMs: WRITE_TIMEOUT_MS, maxOutput: MAX_RULE_LIST });
  } catch (error) {
    throw iptablesFailure(await causeOf(exec, tools, family, error), doing, stdin);
  }
}

/** Lists all rules of a family. No table is named, so that it creates none. Rejects with a `ToolError`. */
export async function saveRules(exec: Exec, tools: Tools, family: Family): Promise<string> {
  try {
    const file = `${programOf(tools, family)}-save`;
    return (await exec({ file, args: [], maxOutput: MAX_RULE_LIST })).stdout;
  } catch (error) {
    throw iptablesFailure(error, `listing the rules of ${tools.name}`);
  }
}

/** Unlike the nft flavour, legacy iptables-restore does not say why a table is missing. */
async function causeOf(exec: Exec, tools: Tools, family: Family, error: unknown): Promise<unknown> {
  const stderr = error instanceof ExecError ? error.stderr : '';
  const [, table] = /unable to initialize table '(\w+)'/.exec(stderr) ?? [];
  if (table === undefined) return error;
  const again = exec({ file: programOf(tools, family), args: ['-t', table, '-S', 'OUTPUT'] });
  const [outcome] = await Promise.allSettled([again]);
  return outcome.status === 'rejected' ? outcome.reason : error;
}

/** `iptables-nft`, or `ip6tables-nft` */
function programOf({ name }: Tools, family: Family): string {
  return family === 4 ? name : name.replace(/^ip/, 'ip6');
}
