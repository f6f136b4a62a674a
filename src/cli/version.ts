import { readFileSync } from 'node:fs';
import { bundledText } from '../util/bundle.ts';

/** The version of the program, from its package.json. */
export function programVersion(): string {
  return (JSON.parse(packageText('package.json')) as { readonly version: string }).version;
}

/** A file of the package, in `folder` unless it is in a single executable. */
export function packageText(name: string, folder = ''): string {
  // The same relative path from dist/cli and from src/cli.
  const read = () => readFileSync(new URL(`../../${folder}${name}`, import.meta.url), 'utf8');
  return bundledText(name) ?? read();
}

/** How requests to a Kubernetes API name the program. */
export function userAgent(): string {
  return `kpng-userspace/${programVersion()} (${process.platform}/${process.arch})`;
}
