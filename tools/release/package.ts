/**
 * The npm package as it is published: `files` of package.json, with the man page, and without what only a checkout needs. The
 * Node that a checkout runs on is an optional dependency of it; a user of the package has a Node already.
 */
import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export type PackageJson = Readonly<Record<string, unknown>> & { readonly files: readonly string[] };

const MAN = 'man/kpng-userspace.1';
/** npm takes these along whatever `files` says. */
const ALWAYS = ['README.md', 'LICENSE'] as const;
const CHECKOUT_ONLY: ReadonlySet<string> = new Set([
  'scripts',
  'devDependencies',
  'optionalDependencies',
]);

/**
 * The address of a project, from the URL of its git remote, such as `git@host:group/name.git`. Credentials are left out.
 * Undefined: the remote is not on another host.
 */
export function projectAddress(remote: string) {
  const scp = /^(?:[^@/]+@)?([^:/]+\.[^:/]+):(?!\/)(.+)$/.exec(remote);
  const url = URL.parse(scp === null ? remote : `ssh://${scp[1]}/${scp[2]}`);
  if (url === null || !/^(?:https?|ssh|git):$/.test(url.protocol)) return undefined;
  const home = `https://${url.hostname}${url.pathname.replace(/(?:\.git)?\/*$/, '')}`;
  return {
    repository: { type: 'git', url: `git+${home}.git` },
    homepage: `${home}#readme`,
    bugs: { url: `${home}/issues` },
  };
}

/** package.json as it is published. `remote`: the URL of the checkout's git remote, if it has one. */
export function published(manifest: PackageJson, remote = ''): PackageJson {
  const kept = Object.entries(manifest).filter(([key]) => !CHECKOUT_ONLY.has(key));
  const own = { ...projectAddress(remote), ...Object.fromEntries(kept) };
  return { ...own, files: [...manifest.files, 'man'], man: `./${MAN}` };
}

/** Puts everything that is published into a folder. `dist` and the man page have to be there. */
export function stage(root: string, folder: string, manifest: PackageJson, remote?: string): void {
  mkdirSync(join(folder, 'man'), { recursive: true });
  // What the others leave out is left out when npm packs the folder.
  const paths = manifest.files.filter((path) => !path.startsWith('!'));
  for (const path of [...paths, ...ALWAYS, MAN]) {
    cpSync(join(root, path), join(folder, path), { recursive: true });
  }
  const text = JSON.stringify(published(manifest, remote), undefined, 2);
  writeFileSync(join(folder, 'package.json'), `${text}\n`);
}
