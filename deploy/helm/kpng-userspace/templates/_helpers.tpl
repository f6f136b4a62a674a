{{- define "kpng-userspace.labels" -}}
{{ include "kpng-userspace.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* The value of app.kubernetes.io/name. */}}
{{- define "kpng-userspace.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The name of every object: fullnameOverride; the release and nameOverride; the release. */}}
{{- define "kpng-userspace.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if and .Values.nameOverride (not (contains .Values.nameOverride .Release.Name)) }}
{{- printf "%s-%s" .Release.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "kpng-userspace.selector" -}}
app.kubernetes.io/name: {{ include "kpng-userspace.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kpng-userspace.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary (include "kpng-userspace.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{/* Whether the proxy writes packet rules: "true", or nothing. */}}
{{- define "kpng-userspace.writesRules" -}}
{{- if has .Values.portal (list "auto" "nftables" "transparent" "iptables") }}true{{ end }}
{{- end }}

{{- define "kpng-userspace.handsOver" -}}
{{- if and .Values.handover (include "kpng-userspace.writesRules" .) }}true{{ end }}
{{- end }}

{{- define "kpng-userspace.image" -}}
{{- $slim := ternary "" "-slim" (eq (include "kpng-userspace.writesRules" .) "true") }}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "%s%s" .Chart.AppVersion $slim) }}{{ end }}
{{- end }}

{{- define "kpng-userspace.apiServerEnv" -}}
{{- if .Values.apiServer.host }}
- name: KUBERNETES_SERVICE_HOST
  value: {{ .Values.apiServer.host | quote }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ .Values.apiServer.port | quote }}
{{- end }}
{{- end }}
