/** Rules of `netsh interface portproxy`: what they are, and how netsh is told of them. */
import { familyOf } from '../../util/family.ts';

/** The families of the two sides of a rule. */
export type RuleType = 'v4tov4' | 'v4tov6' | 'v6tov4' | 'v6tov6';

/** Leads TCP connections from an address and port to another. */
export interface ProxyRule {
  readonly type: RuleType;
  /** IP literal, or `*`: every address of the family. */
  readonly address: string;
  readonly port: number;
  readonly toAddress: string;
  readonly toPort: number;
}

/** What a rule is told apart from others by: Windows has one at most of each. */
export function ruleKey({
  type,
  address,
  port,
}: Pick<ProxyRule, 'type' | 'address' | 'port'>): string {
  return `${type} ${address} ${port}`;
}

/** Whether a text can be a key. */
export function isRuleKey(text: string): boolean {
  return /^v[46]tov[46] (?:\*|[\d.]+|[\da-f:.]+) \d{1,5}$/.test(text);
}

/** The rule that leads a listener's place to a proxy port. */
export function ruleFor(
  { address, port }: { readonly address: string; readonly port: number },
  toAddress: string,
  toPort: number,
): ProxyRule {
  const type = `v${familyOf(address)}tov${familyOf(toAddress)}` as const;
  const isEvery = address === '0.0.0.0' || address === '::';
  return { type, address: isEvery ? '*' : address, port, toAddress, toPort };
}

/** Adds a rule, or changes where it leads. */
export function addRuleArgs({ type, address, port, toAddress, toPort }: ProxyRule): string[] {
  const from = [`listenaddress=${address}`, `listenport=${port}`];
  const to = [`connectaddress=${toAddress}`, `connectport=${toPort}`];
  return ['interface', 'portproxy', 'add', type, ...from, ...to, 'protocol=tcp'];
}

/** Removes the rule of a key. */
export function deleteRuleArgs(key: string): string[] {
  const [type = '', address, port] = key.split(' ');
  const from = [`listenaddress=${address}`, `listenport=${port}`];
  return ['interface', 'portproxy', 'delete', type, ...from, 'protocol=tcp'];
}

/** Lists the rules of a type. */
export function listRulesArgs(type: RuleType): string[] {
  return ['interface', 'portproxy', 'show', type];
}

/** The rules in a listing, whatever its language: four columns, of which two are ports. */
export function readRules(text: string, type: RuleType): ProxyRule[] {
  return text.split(/\r?\n/).flatMap((line) => {
    const [address = '', port = '', toAddress = '', toPort = '', more] = line.trim().split(/\s+/);
    const isRule = more === undefined && /^\d+$/.test(port) && /^\d+$/.test(toPort);
    return isRule ? [{ type, address, port: Number(port), toAddress, toPort: Number(toPort) }] : [];
  });
}
