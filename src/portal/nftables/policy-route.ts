/** The routing rule and route that deliver marked packets to this host, in each address family. */
import { KpngError } from '../../errors.ts';
import type { Family } from '../../util/family.ts';
import { ExecError, type Exec } from '../exec.ts';
import { FAMILIES, type TransparentRoute } from '../rules/backend.ts';
import { NET_ADMIN, toolFailure, type Tool } from '../tool-failure.ts';

const IP: Tool = {
  program: 'ip',
  remedy: 'install the package iproute2, or use another --portal',
  diagnoses: [
    {
      pattern: /Operation not permitted|Permission denied/,
      code: 'KPNG_PORTAL_PERMISSION',
      advice: NET_ADMIN,
    },
    {
      pattern: /unrecognized option|invalid option|Option "?-j/,
      code: 'KPNG_PORTAL_UNSUPPORTED',
      advice: 'this ip has no JSON output; install the package iproute2',
    },
    {
      pattern: /Operation not supported|Address family not supported/,
      code: 'KPNG_PORTAL_UNSUPPORTED',
      advice: 'the kernel has no policy routing; use another --portal',
    },
  ],
};

/**
 * Clear of the marks of kube-proxy (0x4000, 0x8000), Cilium (0x0f00 and above), Istio (0x539), Calico (0xffff0000) and
 * Tailscale (0xff0000), and of their tables and priorities.
 */
export const DEFAULT_ROUTE: TransparentRoute = { mark: 0x40, table: 10_040, priority: 40 };

/** Identifies our rules and routes; a number that no other program has registered. */
const PROTOCOL = '78';

/** A route of ours as `ip` prints it. */
const IS_OURS = new RegExp(` proto ${PROTOCOL}\\b`);

/** The mask of a rule that names none. */
const ALL_BITS = '0xffffffff';

/** A rule as `ip -j rule` prints it. */
interface Rule {
  readonly priority?: number;
  readonly fwmark?: string;
  readonly fwmask?: string;
  readonly table?: string;
  readonly protocol?: string;
}

/** Keeps the route of a transparent portal. Its calls reject with a `ToolError`. */
export class PolicyRoute {
  readonly #exec: Exec;
  readonly #route: TransparentRoute;

  constructor(exec: Exec, route: TransparentRoute) {
    this.#exec = exec;
    this.#route = route;
  }

  /** Adds what is missing. Rejects with KPNG_PORTAL_CONFLICT when another program uses the mark or the table. */
  async ensure(families: readonly Family[]): Promise<void> {
    for (const family of families) {
      const { missing, stale } = await this.#changes(family);
      const commands = [...missing, ...stale];
      if (commands.length > 0) await this.#ip(family, 'adding', ['-batch', '-'], commands);
    }
  }

  /** What is missing; undefined: nothing. */
  async difference(families: readonly Family[]): Promise<string | undefined> {
    for (const family of families) {
      const [first] = (await this.#changes(family)).missing;
      if (first !== undefined) return `no ${first.replace(/ add /, ' ')} in IPv${family}`;
    }
    return undefined;
  }

  /** Removes rule and route, if any; returns whether there were. */
  async remove(): Promise<boolean> {
    let isRemoved = false;
    for (const family of FAMILIES) {
      const { rule, route } = await this.#present(family).catch((error: unknown) => {
        // Without the program or the family, nothing can have been added.
        if (error instanceof KpngError && NOT_HERE.has(error.code)) return NOTHING;
        throw error;
      });
      const commands = [
        ...(rule ? [`rule delete ${this.#ruleText}`] : []),
        ...(route ? [`route flush table ${this.#route.table} protocol ${PROTOCOL}`] : []),
      ];
      if (commands.length === 0) continue;
      await this.#ip(family, 'removing', ['-batch', '-'], commands);
      isRemoved = true;
    }
    return isRemoved;
  }

  get #ruleText(): string {
    const { mark, table, priority } = this.#route;
    return `fwmark ${mark}/${mark} lookup ${table} priority ${priority} protocol ${PROTOCOL}`;
  }

  #checkOthers(others: readonly Rule[]): void {
    const { mark } = this.#route;
    const rule = others.find((each) => overlaps(each, mark));
    if (rule === undefined) return;
    throw new KpngError(
      'KPNG_PORTAL_CONFLICT',
      `the routing rule ${rule.priority} of another program (fwmark ${rule.fwmark}/${rule.fwmask ?? ALL_BITS}) ` +
        `matches the packets that --portal transparent marks with 0x${mark.toString(16)}; give --portal-mark other bits`,
    );
  }

  async #changes(family: Family): Promise<{ missing: string[]; stale: string[] }> {
    const { rule, stale, route, others, othersRoute } = await this.#present(family);
    const { table, priority } = this.#route;
    this.#checkOthers(others);
    if (othersRoute !== undefined) {
      throw new KpngError(
        'KPNG_PORTAL_CONFLICT',
        `the routing table ${table} has a route of another program (${othersRoute.trim()}); give ` +
          '--portal-route-table another number',
      );
    }
    return {
      missing: [
        ...(route ? [] : [`route add local default dev lo table ${table} protocol ${PROTOCOL}`]),
        ...(rule ? [] : [`rule add ${this.#ruleText}`]),
      ],
      stale: stale.map(
        ({ fwmark, fwmask = ALL_BITS }) =>
          `rule delete fwmark ${fwmark}/${fwmask} lookup ${table} priority ${priority} protocol ${PROTOCOL}`,
      ),
    };
  }

  async #present(family: Family): Promise<Present> {
    const { table, priority, mark } = this.#route;
    const rules = readRules(await this.#ip(family, 'listing', ['-j', 'rule']));
    const list = ['route', 'show', 'table', String(table)];
    const routes = await this.#ip(family, 'listing', list).catch((error: unknown) => {
      // A table without routes does not exist.
      if (error instanceof KpngError && error.message.includes('does not exist')) return '';
      throw error;
    });
    const own = rules.filter((each) => {
      const isSame = each.priority === priority && each.table === String(table);
      return isSame && each.protocol === PROTOCOL;
    });
    const isCurrent = ({ fwmark, fwmask = ALL_BITS }: Rule): boolean =>
      Number(fwmark) === mark && Number(fwmask) === mark;
    return {
      rule: own.some(isCurrent),
      stale: own.filter((each) => each.fwmark !== undefined && !isCurrent(each)),
      route: /^local (?:default|::\/0) dev lo /m.test(routes),
      others: rules.filter(({ protocol }) => protocol !== PROTOCOL),
      othersRoute: routes.split('\n').find((line) => line !== '' && !IS_OURS.test(line)),
    };
  }

  async #ip(
    family: Family,
    doing: string,
    args: readonly string[],
    commands: readonly string[] = [],
  ): Promise<string> {
    const stdin = commands.length === 0 ? {} : { stdin: `${commands.join('\n')}\n` };
    try {
      return (await this.#exec({ file: 'ip', args: [`-${family}`, ...args], ...stdin })).stdout;
    } catch (cause) {
      const what = `${doing} the routes of marked packets in IPv${family}`;
      throw cause instanceof ExecError ? toolFailure(cause, what, IP) : cause;
    }
  }
}

/** What there is in one family: our rule and route, and the rules of other programs. */
interface Present {
  readonly rule: boolean;
  /** Our rules for other marks, from before `--portal-mark` was changed. */
  readonly stale: readonly Rule[];
  readonly route: boolean;
  readonly others: readonly Rule[];
  /** A route of another program in our table, as `ip` prints it; undefined: none. */
  readonly othersRoute: string | undefined;
}

const NOTHING: Present = {
  rule: false,
  stale: [],
  route: false,
  others: [],
  othersRoute: undefined,
};
const NOT_HERE = new Set<string>(['KPNG_PORTAL_TOOL_MISSING', 'KPNG_PORTAL_UNSUPPORTED']);

function readRules(text: string): readonly Rule[] {
  const rules: unknown = JSON.parse(text === '' ? '[]' : text);
  return Array.isArray(rules) ? (rules as readonly Rule[]) : [];
}

/** Whether a packet with only one of the marks would match the rule of the other. */
function overlaps({ fwmark, fwmask = ALL_BITS }: Rule, mark: number): boolean {
  if (fwmark === undefined) return false;
  const theirs = BigInt(fwmark);
  const ours = BigInt(mark);
  return (ours & BigInt(fwmask)) === theirs || (theirs & ours) === ours;
}
