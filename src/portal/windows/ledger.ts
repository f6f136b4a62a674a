import { mkdir, readFile } from 'node:fs/promises';
import { uptime } from 'node:os';
import { dirname, join } from 'node:path';
import { KpngError, messageOf } from '../../errors.ts';
import { writeAtomically } from '../../util/atomic-file.ts';
import { isEqual } from '../../util/compare.ts';

/** Tolerance between two readings of the boot time. The clock may have been set in between. Milliseconds. */
export const BOOT_TOLERANCE_MS = 600_000;

/**
 * Records in a file which addresses we added, as Windows has no mark for them.
 *
 * An address is recorded before it is added and erased after its removal, so after a kill there are at most too many
 * records. Records from before a boot do not count. Rejects with KPNG_PORTAL_FAILED.
 */
export class AddressLedger {
  readonly path: string;
  readonly #bootedAt: () => number;
  addresses: ReadonlySet<string> = new Set();

  /** `bootedAt`: boot time, milliseconds since 1970; constant for records that outlive a boot. */
  constructor(path: string, bootedAt: () => number) {
    this.path = path;
    this.#bootedAt = bootedAt;
  }

  /** Reads the file, which another process of ours may have written. */
  async load(): Promise<void> {
    const text = await this.#attempt('reading', () =>
      readFile(this.path, 'utf8').catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'ENOENT') throw error;
        return '';
      }),
    );
    const [header = '', ...lines] = text.trimEnd().split('\n');
    const booted = Number(/^kpng-userspace addresses, booted (\d+)$/.exec(header)?.[1]);
    const isValid = Math.abs(booted - this.#bootedAt()) <= BOOT_TOLERANCE_MS;
    this.addresses = new Set(isValid ? lines : []);
  }

  /** Replaces the record. */
  async keep(addresses: Iterable<string>): Promise<void> {
    const before = this.addresses;
    this.addresses = new Set(addresses);
    if (isEqual([...this.addresses], [...before])) return;
    const header = `kpng-userspace addresses, booted ${Math.round(this.#bootedAt())}\n`;
    const lines = [...this.addresses].map((address) => `${address}\n`);
    await this.#attempt('writing', async () => {
      await mkdir(dirname(this.path), { recursive: true });
      await writeAtomically(this.path, [header, ...lines]);
    });
  }

  async #attempt<T>(doing: string, action: () => Promise<T>): Promise<T> {
    try {
      return await action();
    } catch (cause) {
      const what = `${this.path}, the record of addresses and rules that this program added`;
      throw new KpngError('KPNG_PORTAL_FAILED', `${doing} ${what}: ${messageOf(cause)}`, { cause });
    }
  }
}

/** The record of our addresses on an interface, or, without a name, of our portproxy rules, which outlive boots. */
export function ledgerFor(env: NodeJS.ProcessEnv, name?: string): AddressLedger {
  const folder = env['ProgramData'] ?? env['PROGRAMDATA'] ?? String.raw`C:\ProgramData`;
  const file = name === undefined ? 'portproxy rules.txt' : `addresses on ${name}.txt`;
  const bootedAt = () => (name === undefined ? 0 : Date.now() - uptime() * 1000);
  return new AddressLedger(join(folder, 'kpng-userspace', file), bootedAt);
}
