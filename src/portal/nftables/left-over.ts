/** Takes away what a portal that has ended left behind. */
import type { KpngError } from '../../errors.ts';
import type { Family } from '../../util/family.ts';
import { MAX_FLOW_LIST, WRITE_TIMEOUT_MS } from '../bounds.ts';
import { ExecError, type Exec } from '../exec.ts';
import type { FlowPlace } from '../flow-table.ts';
import { forgetFlows } from '../flows.ts';
import { checkTableName } from './table-name.ts';
import { removeNftables } from './tool.ts';

/**
 * Removes the table, and the UDP flows that it has led to proxy ports: as long as connection tracking
 * remembers them, their clients are sent where nobody listens. `local` are the addresses of the node.
 *
 * Fine when there is no table. Rejects with KPNG_PORTAL_* when it cannot be removed; resolves with an
 * error when only flows are left.
 */
export async function cleanUpNftables(
  exec: Exec,
  table: string,
  local: ReadonlySet<string>,
): Promise<KpngError | undefined> {
  checkTableName(table);
  const places = await udpPlaces(exec, table);
  await removeNftables(exec, table);
  return forgetFlows(exec, places, local);
}

/** The UDP portals in the table; none when there is no such table, or when it cannot be read. */
async function udpPlaces(exec: Exec, table: string): Promise<FlowPlace[]> {
  try {
    const { stdout } = await exec({
      file: 'nft',
      args: ['list', 'table', 'inet', table],
      timeoutMs: WRITE_TIMEOUT_MS,
      maxOutput: MAX_FLOW_LIST,
    });
    return [...readUdpPlaces(stdout)];
  } catch (error) {
    // Removing the table tells what is wrong, if it is more than that there is none.
    if (error instanceof ExecError) return [];
    throw error;
  }
}

const MAP = /^\s*map (?:services|node-ports)([46]) \{/;
const SET_END = /^\s*\}/;
const ELEMENT = /(?:([0-9a-f.:]+) \. )?udp \. (\d+) : \d+/g;

/** Reads what `nft list table` prints. */
function* readUdpPlaces(text: string): Generator<FlowPlace> {
  let family: Family | undefined;
  for (const line of text.split('\n')) {
    const [, digit] = MAP.exec(line) ?? [];
    if (digit !== undefined) family = digit === '4' ? 4 : 6;
    else if (SET_END.test(line)) family = undefined;
    if (family === undefined) continue;
    for (const [, address, port] of line.matchAll(ELEMENT)) {
      yield { family, address, port: Number(port), proxyPort: undefined, formerly: 'unknown' };
    }
  }
}
