import { readFileSync } from 'node:fs';
import { bundledText } from '../util/bundle.ts';

/** The version of the program, from its package.json. */
export function programVersion(): string {
  // The same relative path from dist/cli and from src/cli.
  const text =
    bundledText('package.json') ??
    readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { readonly version: string }).version;
}

/** How requests to a Kubernetes API name the program. */
export function userAgent(): string {
  return `kpng-userspace/${programVersion()} (${process.platform}/${process.arch})`;
}

/** What `version` prints: one `name: value` for each line. */
export function versionText(): string {
  const { node, v8 } = process.versions;
  return [
    `kpng-userspace: ${programVersion()}`,
    `node: ${node}`,
    `v8: ${v8}`,
    `platform: ${process.platform} ${process.arch}`,
    '',
  ].join('\n');
}
