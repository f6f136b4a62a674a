import type { Wine } from './wine.ts';

/** A value of the registry: its type and what `reg query` prints of it. */
export type RegistryValue = readonly [type: string, data: string];

/** The values of a key and, under `SUBKEY\NAME`, of those below it. Rejects when there is no such key. */
export async function registryOf(
  wine: Wine,
  key: string,
): Promise<ReadonlyMap<string, RegistryValue>> {
  const reg = String.raw`C:\windows\system32\reg.exe`;
  const { code, stdout } = await wine.run(reg, ['query', key, '/s']);
  if (code !== 0) throw new Error(`there is no ${key}`);
  const found = new Map<string, RegistryValue>();
  let below = '';
  for (const line of stdout.split('\r\n')) {
    if (line.startsWith('HK')) below = line.slice(key.length).replace(/^\\/, '');
    const [, name = '', type = '', data = ''] = /^ {4}(.+?) {4}(REG_\w+) {4}(.*)$/.exec(line) ?? [];
    if (name !== '') found.set(below === '' ? name : `${below}\\${name}`, [type, data]);
  }
  return found;
}

/** The key of a service. */
export function serviceKey(name: string): string {
  return String.raw`HKEY_LOCAL_MACHINE\System\CurrentControlSet\Services` + `\\${name}`;
}
