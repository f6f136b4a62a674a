#!/usr/bin/env node
/**
 * Redirects everything that is sent to a service's first external IP, whatever its protocol and port, to the
 * service's first endpoint on this node. For kpng-callout: reads the state, and has nft replace its
 * table in one transaction, so that what is not wanted any more is gone. Without services there is no table.
 *
 *     CALLOUT=examples/all-ip/callout.ts kpng-callout
 *
 * `callout.ts </dev/null` removes everything.
 */
import { execFileSync } from 'node:child_process';
import { isIPv4, isIPv6 } from 'node:net';
import { readFileSync } from 'node:fs';

const TABLE = 'inet kpng-all-ip';

type IPs = Partial<Record<'V4' | 'V6', readonly string[]>>;

/** A line of the state, as far as it is needed here. */
interface Item {
  readonly Service: { readonly IPs?: { readonly ExternalIPs?: IPs } };
  readonly Endpoints: readonly { readonly IPs?: IPs; readonly Local?: boolean }[] | null;
}

const items = readFileSync(0, 'utf8')
  .split('\n')
  .filter((line) => line !== '')
  .map((line) => JSON.parse(line) as Item);

const families = [
  { key: 'V4', type: 'ipv4_addr', word: 'ip', isIP: isIPv4 },
  { key: 'V6', type: 'ipv6_addr', word: 'ip6', isIP: isIPv6 },
] as const;

/** Lines that declare a map of one family, and the rule that uses it. */
const parts = families.flatMap(({ key, type, word, isIP }) => {
  const pairs = new Map<string, string>();
  for (const { Service, Endpoints } of items) {
    const from = Service.IPs?.ExternalIPs?.[key]?.find((ip) => isIP(ip));
    const local = Endpoints?.filter((endpoint) => endpoint.Local === true) ?? [];
    const to = local.flatMap((endpoint) => endpoint.IPs?.[key] ?? []).find((ip) => isIP(ip));
    if (from !== undefined && to !== undefined && !pairs.has(from)) pairs.set(from, to);
  }
  if (pairs.size === 0) return [];
  const elements = [...pairs].map(([from, to]) => `${from} : ${to}`).join(', ');
  const map = `map ${key} { type ${type} : ${type}; elements = { ${elements} }; }`;
  return [{ map, rule: `dnat ${word} to ${word} daddr map @${key}` }];
});

const rules = parts.map(({ rule }) => `    ${rule}`);
const table = [
  `table ${TABLE} {`,
  ...parts.map(({ map }) => `  ${map}`),
  '  chain arriving {',
  '    type nat hook prerouting priority -100;',
  ...rules,
  '  }',
  '  chain leaving {',
  '    type nat hook output priority -100;',
  ...rules,
  '  }',
  '}',
];
// Adding the table first makes that deleting it never fails.
const script = [`add table ${TABLE}`, `delete table ${TABLE}`, ...(parts.length > 0 ? table : [])];
execFileSync('nft', ['-f', '-'], {
  input: `${script.join('\n')}\n`,
  stdio: ['pipe', 2, 'inherit'],
});
process.stdout.write(`${parts.flatMap(({ map }) => map).join('\n')}\n`);
