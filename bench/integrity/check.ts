import type { IntegrityScene } from './scene.ts';

/** What one check found. */
export interface CheckResult {
  readonly ok: boolean;
  /** One line with numbers. */
  readonly text: string;
}

export interface CheckOptions {
  /** Size of the large transfers. Bytes. */
  readonly bytes: number;
  /** Connections of the check that kills an endpoint. */
  readonly connections: number;
}

export type Check = (scene: IntegrityScene, options: CheckOptions) => Promise<CheckResult>;

/** `1 GiB`, `256 MiB`, `12 KiB`. */
export function sizeText(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  let value = bytes;
  let unit = 0;
  for (; value >= 1024 && unit < units.length - 1; unit += 1) value /= 1024;
  return `${Number(value.toFixed(1))} ${units[unit]}`;
}
