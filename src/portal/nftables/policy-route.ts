/** The routing rule and route that deliver marked packets to this host, in each address family. */
import { KpngError } from '../../errors.ts';
import type { Family } from '../../util/family.ts';
import { type Command, type Exec, ExecError, NET_ADMIN, runTool, type Tool } from '../exec.ts';
import { FAMILIES, type TransparentRoute } from '../rules/backend.ts';

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

/** The mask of a rule that names none. */
const ALL_BITS = '0xffffffff';

interface Rule {
  readonly priority?: number;
  readonly fwmark?: string;
  readonly fwmask?: string;
  readonly table?: string;
  readonly protocol?: string;
}

interface Route {
  readonly type?: string;
  readonly dst?: string;
  readonly dev?: string;
  readonly protocol?: string;
}

interface Listed {
  readonly family: Family;
  readonly rules: readonly Rule[];
  readonly routes: readonly Route[];
}

interface Changes {
  readonly family: Family;
  readonly add: readonly string[];
  /** Remove rules of ours for other marks, from before `--portal-mark` was changed. */
  readonly replace: readonly string[];
  /** Remove all that is ours. */
  readonly remove: readonly string[];
}

/** Its calls reject with a `ToolError`. */
export class PolicyRoute {
  readonly #exec: Exec;
  readonly #route: TransparentRoute;

  constructor(exec: Exec, route: TransparentRoute) {
    this.#exec = exec;
    this.#route = route;
  }

  /**
   * Adds what is missing, and returns whether anything was. Rejects with KPNG_PORTAL_CONFLICT when another program uses
   * the mark or the table.
   */
  async ensure(families: readonly Family[]): Promise<boolean> {
    const missing = await this.#missing(families);
    await Promise.all(
      missing.map(({ family, add, replace }) =>
        this.#batch(family, 'adding', [...add, ...replace]),
      ),
    );
    return missing.some(({ add }) => add.length > 0);
  }

  /** Rejects with KPNG_PORTAL_CONFLICT when a rule of another program may route marked packets first. */
  async refuseEarlierRules(families: readonly Family[]): Promise<void> {
    for (const family of families) {
      const { rules } = await this.#list(family);
      const rule = rules.find((each) => this.#isEarlier(each));
      if (rule === undefined) continue;
      throw new KpngError(
        'KPNG_PORTAL_CONFLICT',
        `the routing rule ${rule.priority} of another program comes before ${this.#route.priority}, that of marked packets`,
      );
    }
  }

  /** Rules for other marks do not count. */
  #isEarlier({ priority = 0, fwmark, table, protocol }: Rule): boolean {
    if (protocol === PROTOCOL || fwmark !== undefined || table === 'local') return false;
    return priority <= this.#route.priority;
  }

  /** What is missing; undefined: nothing. Rejects as `ensure` does. */
  async difference(families: readonly Family[]): Promise<string | undefined> {
    for (const { family, add } of await this.#missing(families)) {
      if (add[0] !== undefined) return `no ${add[0].replace(/ add /, ' ')} in IPv${family}`;
    }
    return undefined;
  }

  async #missing(families: readonly Family[]): Promise<Changes[]> {
    const listed = await Promise.all(families.map((family) => this.#list(family)));
    for (const each of listed) this.#refuseConflict(each);
    return listed.map((each) => this.#changes(each));
  }

  /** Removes rule and route, if any; returns whether there were. */
  async remove(): Promise<boolean> {
    let isRemoved = false;
    for (const family of FAMILIES) {
      try {
        const { remove } = this.#changes(await this.#list(family));
        await this.#batch(family, 'removing', remove);
        isRemoved ||= remove.length > 0;
      } catch (error) {
        // Without the program or the family, nothing can have been added.
        if (!(error instanceof KpngError && NOT_HERE.has(error.code))) throw error;
      }
    }
    return isRemoved;
  }

  #changes({ family, rules, routes }: Listed): Changes {
    const { table, priority, mark } = this.#route;
    const textOf = ({ fwmark, fwmask = ALL_BITS }: Rule): string =>
      `${Number(fwmark)}/${Number(fwmask)} lookup ${table} priority ${priority} protocol ${PROTOCOL}`;
    const rule = textOf({ fwmark: String(mark), fwmask: String(mark) });
    const own = rules
      .filter((each) => each.protocol === PROTOCOL && each.fwmark !== undefined)
      .filter((each) => each.priority === priority && each.table === String(table))
      .map(textOf);
    const deletion = (text: string): string => `rule delete fwmark ${text}`;
    const hasRoute = routes.some(
      ({ type, dst, dev }) =>
        type === 'local' && (dst === 'default' || dst === '::/0') && dev === 'lo',
    );
    return {
      family,
      add: [
        ...(hasRoute ? [] : [`route add local default dev lo table ${table} protocol ${PROTOCOL}`]),
        ...(own.includes(rule) ? [] : [`rule add fwmark ${rule}`]),
      ],
      replace: own.filter((each) => each !== rule).map(deletion),
      remove: [
        ...own.map(deletion),
        ...(hasRoute ? [`route flush table ${table} protocol ${PROTOCOL}`] : []),
      ],
    };
  }

  /** The routing rules, and the routes of our table, with one process: it is run again and again. */
  async #list(family: Family): Promise<Listed> {
    const stdin = `rule\nroute show table ${this.#route.table}\n`;
    const listing = this.#ip(family, 'listing', { args: ['-j', '-batch', '-'], stdin });
    const text = await listing.catch((error: unknown) => {
      const cause = error instanceof KpngError ? error.cause : undefined;
      const isEmpty = cause instanceof ExecError && cause.stderr.includes('does not exist');
      // To some versions, a table without routes does not exist; they have printed the rules by then.
      if (isEmpty) return cause.stdout;
      throw error;
    });
    const [rules = [], routes = []] = text
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as readonly object[]);
    return { family, rules, routes };
  }

  /** Throws KPNG_PORTAL_CONFLICT when another program uses the mark or the table. */
  #refuseConflict({ rules, routes }: Listed): void {
    const { mark, table } = this.#route;
    const rule = rules.find((each) => each.protocol !== PROTOCOL && overlaps(each, mark));
    if (rule !== undefined) {
      throw new KpngError(
        'KPNG_PORTAL_CONFLICT',
        `the routing rule ${rule.priority} of another program (fwmark ${rule.fwmark}/${rule.fwmask ?? ALL_BITS}) ` +
          `matches the packets that --portal transparent marks with 0x${mark.toString(16)}; give --portal-mark other bits`,
      );
    }
    const route = routes.find(({ protocol }) => protocol !== PROTOCOL);
    if (route === undefined) return;
    throw new KpngError(
      'KPNG_PORTAL_CONFLICT',
      `the routing table ${table} has a route of another program to ${route.dst}; give ` +
        '--portal-route-table another number',
    );
  }

  async #batch(family: Family, doing: string, commands: readonly string[]): Promise<void> {
    if (commands.length === 0) return;
    const stdin = commands.map((command) => `${command}\n`).join('');
    await this.#ip(family, doing, { args: ['-batch', '-'], stdin });
  }

  #ip(family: Family, doing: string, { args, ...more }: Omit<Command, 'file'>): Promise<string> {
    const what = `${doing} the routes of marked packets in IPv${family}`;
    return runTool(this.#exec, IP, what, { args: [`-${family}`, ...args], ...more });
  }
}

const NOT_HERE = new Set<string>(['KPNG_PORTAL_TOOL_MISSING', 'KPNG_PORTAL_UNSUPPORTED']);

/** Whether a packet with only one of the marks would match the rule of the other. */
function overlaps({ fwmark, fwmask = ALL_BITS }: Rule, mark: number): boolean {
  if (fwmark === undefined) return false;
  const theirs = BigInt(fwmark);
  const ours = BigInt(mark);
  return (ours & BigInt(fwmask)) === theirs || (theirs & ours) === ours;
}
