import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { bundledText } from '../util/bundle.ts';
import type { Answer, HttpRequest } from '../util/http-server.ts';

/** The modules of the page, each after those that it imports from. */
export const PAGE_SCRIPTS = [
  'dom.js',
  'format.js',
  'plot.js',
  'head.js',
  'rows.js',
  'details.js',
  'main.js',
] as const;

/** Every file that the page is made of. */
export const PAGE_FILES = ['page.html', 'style.css', ...PAGE_SCRIPTS] as const;

let made: Answer | undefined;

/** The status page, at the root; undefined for any other path. It is put together once. */
export function answerPage({
  path,
  method,
}: Pick<HttpRequest, 'path' | 'method'>): Answer | undefined {
  if (path !== '/' || (method !== 'GET' && method !== 'HEAD')) return undefined;
  made ??= makePage(readPageFile);
  return made;
}

function readPageFile(name: string): string {
  const inside = bundledText(`status-page/${name}`);
  if (inside !== undefined) return inside;
  // The folder is as far away from dist/admin as from src/admin.
  return readFileSync(new URL(`../../assets/status-page/${name}`, import.meta.url), 'utf8');
}

/**
 * One document with everything in it, and the headers that allow exactly that: this script and this
 * style by their hashes, questions to where it comes from, and nothing else from anywhere.
 */
export function makePage(read: (name: string) => string): Answer {
  const style = read('style.css');
  const script = PAGE_SCRIPTS.map((name) => withoutImports(read(name))).join('\n');
  const body = read('page.html')
    .replace('<style></style>', () => `<style>${style}</style>`)
    .replace('<script type="module"></script>', () => `<script type="module">${script}</script>`);
  const policy = [
    "default-src 'none'",
    `script-src '${hashOf(script)}'`,
    `style-src '${hashOf(style)}'`,
    "connect-src 'self'",
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
  ];
  return {
    status: 200,
    type: 'text/html; charset=utf-8',
    body,
    headers: {
      'content-security-policy': policy.join('; '),
      'referrer-policy': 'no-referrer',
      'x-content-type-options': 'nosniff',
      'cross-origin-opener-policy': 'same-origin',
      'cross-origin-resource-policy': 'same-origin',
    },
  };
}

/** In one script, modules see each other's names as they are. */
function withoutImports(module: string): string {
  return module
    .replace(/^import [^;]*;\n/gm, '')
    .replace(/^export (?=async |function |const |let |class )/gm, '');
}

function hashOf(text: string): string {
  return `sha256-${createHash('sha256').update(text).digest('base64')}`;
}
