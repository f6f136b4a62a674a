/** The routing rule and route that deliver marked packets to this host, in each address family. */
import { KpngError } from '../../errors.ts';
import { FAMILIES, type Family } from '../../util/family.ts';
import { type Exec, ExecError, NOT_PERMITTED, runTool, type Tool } from '../exec.ts';
import type { TransparentRoute } from '../rules/backend.ts';

const IP: Tool = {
  program: 'ip',
  remedy: 'install the package iproute2, or use another --portal',
  diagnoses: [
    NOT_PERMITTED,
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

type Field = 'fwmark' | 'fwmask' | 'table' | 'protocol' | 'type' | 'dst' | 'dev';

/** A rule or route, as ip lists it. */
type Item = Readonly<{ priority?: number } & Partial<Record<Field, string>>>;

/** Its calls reject with a `ToolError`. */
export function policyRoute(exec: Exec, { mark, table, priority }: TransparentRoute) {
  /** Runs commands in one process, as they are run again and again. */
  const batch = async (
    family: Family,
    doing: string,
    commands: readonly string[],
    flags: readonly string[] = [],
  ): Promise<string> => {
    if (commands.length === 0) return '';
    const stdin = commands.map((command) => `${command}\n`).join('');
    const what = `${doing} the routes of marked packets in IPv${family}`;
    const args = [`-${family}`, ...flags, '-batch', '-'];
    return runTool(exec, IP, what, { args, stdin });
  };

  /** The routing rules, the routes of our table, and commands of `ip -batch` about ours. */
  const list = async (family: Family) => {
    const listing = batch(family, 'listing', ['rule', `route show table ${table}`], ['-j']);
    const text = await listing.catch((error: unknown) => {
      const cause = error instanceof KpngError ? error.cause : undefined;
      const isEmpty = cause instanceof ExecError && cause.stderr.includes('does not exist');
      // To some versions, a table without routes does not exist; they have printed the rules by then.
      if (isEmpty) return cause.stdout;
      throw error;
    });
    const lines = text.split('\n').filter((line) => line !== '');
    const [rules = [], routes = []] = lines.map((line) => JSON.parse(line) as Item[]);
    const textOf = (fwmark: number, fwmask: number): string =>
      `fwmark ${hex(fwmark)}/${hex(fwmask)} lookup ${table} priority ${priority} protocol ${PROTOCOL}`;
    const rule = textOf(mark, mark);
    const own = rules.flatMap(({ fwmark, fwmask = ALL_BITS, ...each }) => {
      const isOwn = each.protocol === PROTOCOL && each.table === String(table);
      if (!isOwn || each.priority !== priority || fwmark === undefined) return [];
      return textOf(Number(fwmark), Number(fwmask));
    });
    const hasRoute = routes.some(
      ({ type, dst, dev }) =>
        type === 'local' && (dst === 'default' || dst === '::/0') && dev === 'lo',
    );
    const route = `table ${table} protocol ${PROTOCOL}`;
    const deletion = (text: string): string => `rule delete ${text}`;
    return {
      family,
      rules,
      routes,
      /** What is missing. */
      add: [
        ...(hasRoute ? [] : [`route add local default dev lo ${route}`]),
        ...(own.includes(rule) ? [] : [`rule add ${rule}`]),
      ],
      /** Remove rules of ours for other marks, from before `--portal-mark` was changed. */
      replace: own.filter((each) => each !== rule).map(deletion),
      /** Remove all that is ours. */
      remove: [...own.map(deletion), ...(hasRoute ? [`route flush ${route}`] : [])],
    };
  };

  type Found = readonly Awaited<ReturnType<typeof list>>[];

  /** Rejects as `ensure` does. */
  const listOwn = async (families: readonly Family[], first = false) => {
    const listed = await Promise.all(families.map(list));
    const others = (items: readonly Item[]) => items.filter((each) => each.protocol !== PROTOCOL);
    const rules = others(listed.flatMap((each) => each.rules));
    // Rules for other marks do not count.
    const earlier = rules.find(
      (rule) =>
        rule.fwmark === undefined && rule.table !== 'local' && (rule.priority ?? 0) <= priority,
    );
    const rule = rules.find((each) => overlaps(each, mark));
    const [route] = others(listed.flatMap((each) => each.routes));
    let conflict: string;
    if (first && earlier !== undefined) {
      conflict = `the routing rule ${earlier.priority} of another program comes before ${priority}, that of marked packets`;
    } else if (rule !== undefined) {
      conflict =
        `the routing rule ${rule.priority} of another program (fwmark ${rule.fwmark}/${rule.fwmask ?? ALL_BITS}) ` +
        `matches the packets that --portal transparent marks with ${hex(mark)}; give --portal-mark other bits`;
    } else if (route !== undefined) {
      conflict =
        `the routing table ${table} has a route of another program to ${route.dst}; give ` +
        '--portal-route-table another number';
    } else return listed;
    throw new KpngError('KPNG_PORTAL_CONFLICT', conflict);
  };

  return {
    /**
     * Adds what is missing, and returns what was found. Rejects with KPNG_PORTAL_CONFLICT when another program uses the
     * mark or the table; with `first`, also when a rule of another program may route marked packets before ours.
     */
    async ensure(families: readonly Family[], first = false) {
      const found = await listOwn(families, first);
      await Promise.all(found.map(({ family, add }) => batch(family, 'adding', add)));
      return found;
    },

    /** Removes the rules for other marks. Call it once no packet gets one. */
    removeOthers: (found: Found) =>
      Promise.all(found.map(({ family, replace }) => batch(family, 'removing', replace))),

    /** Removes what `ensure` has added. */
    removeAdded: (found: Found) =>
      Promise.all(
        found.map(({ family, add }) => {
          const commands = add.map((command) => command.replace(' add ', ' delete '));
          return batch(family, 'removing', commands);
        }),
      ),

    /** What is missing; undefined: nothing. Rejects as `ensure` does. */
    async difference(families: readonly Family[]): Promise<string | undefined> {
      for (const { family, add } of await listOwn(families)) {
        if (add[0] !== undefined) return `no ${add[0].replace(/ add /, ' ')} in IPv${family}`;
      }
      return undefined;
    },

    /** Removes rule and route, if any; returns whether there were. */
    async remove(): Promise<boolean> {
      let isRemoved = false;
      for (const family of FAMILIES) {
        try {
          const { remove } = await list(family);
          await batch(family, 'removing', remove);
          isRemoved ||= remove.length > 0;
        } catch (error) {
          // Without the program or the family, nothing can have been added.
          if (!(error instanceof KpngError && NOT_HERE.has(error.code))) throw error;
        }
      }
      return isRemoved;
    },
  };
}

const NOT_HERE = new Set<string>(['KPNG_PORTAL_TOOL_MISSING', 'KPNG_PORTAL_UNSUPPORTED']);

/** Whether a packet with only one of the marks would match the rule of the other. */
function overlaps({ fwmark, fwmask = ALL_BITS }: Item, mark: number): boolean {
  if (fwmark === undefined) return false;
  const theirs = BigInt(fwmark);
  const ours = BigInt(mark);
  return (ours & BigInt(fwmask)) === theirs || (theirs & ours) === ours;
}

function hex(bits: number): string {
  return `0x${bits.toString(16)}`;
}
