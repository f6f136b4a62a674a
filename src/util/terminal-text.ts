/**
 * Writes out, as `\uXXXX`, what could end a line, move the cursor of a terminal or change the direction of text: control
 * and format characters, line and paragraph separators. Names come from the network.
 */
export function escapeControls(text: string): string {
  return text.replace(CONTROLS, (found) => {
    let escaped = '';
    for (let index = 0; index < found.length; index += 1)
      escaped += `\\u${found.charCodeAt(index).toString(16).padStart(4, '0')}`;
    return escaped;
  });
}

/** The same for text with several lines; keeps the line breaks. */
export function escapeLines(text: string): string {
  return text.split('\n').map(escapeControls).join('\n');
}

export function hasControls(text: string): boolean {
  return text.search(CONTROLS) !== -1;
}

const CONTROLS = /[\p{Cc}\p{Cf}\u2028\u2029]/gu;
