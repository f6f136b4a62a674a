/** Takes addresses and interfaces of ours away again. */
import { KpngError } from '../../errors.ts';
import type { Exec } from '../exec.ts';
import { Spelling, type Link } from './linux-list.ts';
import { listLinks, removalOf, runBatch, saidFailure, saysAbsent } from './linux-tool.ts';

/** Throws KPNG_USAGE for what the kernel would not take as the name of an interface. */
export function checkInterfaceName(name: string): void {
  if (/^(?!-|\.\.?$)[\w.+@-]{1,15}$/.test(name)) return;
  throw new KpngError(
    'KPNG_USAGE',
    `${JSON.stringify(name)} cannot be the name of a network interface: up to 15 letters, digits and ` +
      'any of _ . + @ -',
  );
}

/**
 * Removes every address of ours, and every interface that this program has made; of one interface
 * only, if one is named. Returns the names of the interfaces that were changed. Rejects with
 * KPNG_PORTAL_* when it cannot be done.
 */
export async function removeInterfaceAddresses(exec: Exec, name?: string): Promise<string[]> {
  if (name !== undefined) checkInterfaceName(name);
  const links = await listLinks(exec, new Spelling());
  const mine = links
    .filter((link) => name === undefined || link.name === name)
    .filter(({ isOurs, addresses }) => isOurs || addresses.some((each) => each.isOurs))
    .map((link) => link.name);
  for (const each of mine) await disposeOf(links, each, exec);
  return mine;
}

/** Removes what is ours of one interface. */
export async function disposeOf(links: readonly Link[], name: string, exec: Exec): Promise<void> {
  const link = links.find((each) => each.name === name);
  if (link === undefined) return;
  const ours = link.addresses.filter(({ isOurs }) => isOurs).map(({ address }) => address);
  const foreign = link.addresses.some(({ isOurs, isLinkLocal }) => !isOurs && !isLinkLocal);
  const lines =
    link.isOurs && !foreign
      ? [`link delete dev ${name}`]
      : ours.map((address) => removalOf(address, name));
  const doing = `removing addresses from the interface ${name}`;
  for (const said of (await runBatch(exec, lines, doing)).values()) {
    if (!saysAbsent(said)) throw saidFailure(said, doing);
  }
}
