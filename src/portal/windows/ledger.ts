import { appendFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { KpngError, messageOf } from '../../errors.ts';
import { renameOver } from '../../util/atomic-file.ts';
import { BOOT_TOLERANCE_MS } from './netsh.ts';

/**
 * Records in a file which addresses we added, as Windows has no mark for them.
 *
 * An address is recorded before it is added and erased after its removal, so after a kill there are at most too many
 * records. Records from before a boot do not count. A change appends. Rejects with KPNG_PORTAL_FAILED.
 */
export class AddressLedger {
  readonly #path: string;
  readonly #bootedAt: () => number;
  #addresses = new Set<string>();

  /** `bootedAt`: boot time, milliseconds since 1970; constant for records that outlive a boot. */
  constructor(path: string, bootedAt: () => number) {
    this.#path = path;
    this.#bootedAt = bootedAt;
  }

  get addresses(): ReadonlySet<string> {
    return this.#addresses;
  }

  /** Reads the file, which another process of ours may have written. */
  async load(): Promise<void> {
    const text = await this.#attempt('reading', () =>
      readFile(this.#path, 'utf8').catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'ENOENT') throw error;
        return '';
      }),
    );
    this.#addresses = readLedger(text, this.#bootedAt());
  }

  async keep(addresses: Iterable<string>): Promise<void> {
    this.#addresses = new Set(addresses);
    const lines = [...this.#addresses].map((address) => `+${address}\n`);
    await this.#attempt('writing', async () => {
      await mkdir(dirname(this.#path), { recursive: true });
      const next = `${this.#path}.new`;
      await writeFile(next, `${header(this.#bootedAt())}\n${lines.join('')}`);
      await renameOver(next, this.#path);
    });
  }

  async add(addresses: readonly string[]): Promise<void> {
    for (const address of addresses) this.#addresses.add(address);
    await this.#append('+', addresses);
  }

  async remove(addresses: readonly string[]): Promise<void> {
    for (const address of addresses) this.#addresses.delete(address);
    await this.#append('-', addresses);
  }

  async #append(sign: string, addresses: readonly string[]): Promise<void> {
    if (addresses.length === 0) return;
    const lines = addresses.map((address) => `${sign}${address}\n`).join('');
    await this.#attempt('writing', () => appendFile(this.#path, lines));
  }

  async #attempt<T>(doing: string, action: () => Promise<T>): Promise<T> {
    try {
      return await action();
    } catch (cause) {
      const what = `${this.#path}, the record of addresses and rules that this program added`;
      throw new KpngError('KPNG_PORTAL_FAILED', `${doing} ${what}: ${messageOf(cause)}`, { cause });
    }
  }
}

function header(bootedAt: number): string {
  return `kpng-userspace addresses 1, booted ${Math.round(bootedAt)}`;
}

/** The last line may be truncated after a power failure, and has no end then. Records of what is gone have no effect. */
function readLedger(text: string, bootedAt: number): Set<string> {
  const [first = '', ...lines] = text.split('\n').slice(0, -1);
  const addresses = new Set<string>();
  const booted = Number(/^kpng-userspace addresses 1, booted (\d+)$/.exec(first)?.[1]);
  if (!(Math.abs(booted - bootedAt) <= BOOT_TOLERANCE_MS)) return addresses;
  for (const line of lines) {
    const address = line.slice(1);
    if (line.startsWith('+')) addresses.add(address);
    else if (line.startsWith('-')) addresses.delete(address);
  }
  return addresses;
}

export type Environment = Readonly<Record<string, string | undefined>>;

export function ledgerPath(name: string, env: Environment): string {
  return join(dataFolder(env), `addresses on ${name}.txt`);
}

/** The record of our portproxy rules, which outlive boots. */
export function ruleLedger(env: Environment): AddressLedger {
  return new AddressLedger(join(dataFolder(env), 'portproxy rules.txt'), () => 0);
}

function dataFolder(env: Environment): string {
  const folder = env['ProgramData'] ?? env['PROGRAMDATA'] ?? String.raw`C:\ProgramData`;
  return join(folder, 'kpng-userspace');
}
