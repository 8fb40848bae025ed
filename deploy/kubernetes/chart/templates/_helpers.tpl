{{- define "straggler.name" -}}
{{ default .Release.Name .Values.nameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "straggler.selectorLabels" -}}
app.kubernetes.io/name: straggler-exporter
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: sidecar
{{- end }}

{{- define "straggler.labels" -}}
app.kubernetes.io/name: straggler-exporter
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: straggler-exporter
{{- end }}

{{- define "straggler.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* Name of the Service in front of dcgm-exporter. */}}
{{- define "straggler.dcgmService" -}}
{{ include "straggler.name" . }}-dcgm
{{- end }}

{{/* The sidecar's settings: what the chart knows, overruled by what the user gives. */}}
{{- define "straggler.config" -}}
{{- $known := dict "listen" ":10110" "ring_dir" "/run/straggler" -}}
{{- with .Values.dcgm.url -}}
{{- $_ := set $known "dcgm" (dict "url" . "same_node" true) -}}
{{- end -}}
{{- if and .Values.dcgm.service.enabled (not .Values.dcgm.url) -}}
{{- $url := printf "http://%s.%s.svc:%v/metrics" (include "straggler.dcgmService" .) .Values.dcgm.service.namespace .Values.dcgm.service.port -}}
{{- $_ := set $known "dcgm" (dict "url" $url "same_node" true) -}}
{{- end -}}
{{- if .Values.push.tokensSecret -}}
{{- $_ := set $known "push" (dict "tokens_file" "/etc/straggler-push/tokens") -}}
{{- end -}}
{{- if or .Values.rings.namespacedRuns .Values.rings.owners -}}
{{- $_ := set $known "rings" (dict "namespaced_runs" .Values.rings.namespacedRuns "owners" .Values.rings.owners) -}}
{{- end -}}
{{- if .Values.infiniband.hostSys -}}
{{- $_ := set $known "infiniband" (dict "sys_dir" "/host/sys") -}}
{{- end -}}
{{- with .Values.nccl.logs -}}
{{- $_ := set $known "nccl" (dict "logs" .) -}}
{{- end -}}
{{- if .Values.webConfigSecret -}}
{{- $_ := set $known "web" (dict "config_file" "/etc/straggler-web/web-config.yml") -}}
{{- end -}}
{{- toYaml (mergeOverwrite $known (deepCopy .Values.config)) -}}
{{- end }}

{{/* Rule groups of all files, as one list of objects with the links filled in. Context: the root. */}}
{{- define "straggler.ruleObjects" -}}
{{- $root := .root -}}
{{- range $path, $_ := $root.Files.Glob "files/rules/*/*.yaml" }}
---
apiVersion: {{ $.api }}
kind: {{ $.kind }}
metadata:
  name: {{ include "straggler.name" $root }}-{{ base (dir $path) }}-{{ base $path | trimSuffix ".yaml" }}
  namespace: {{ default $root.Release.Namespace $.options.namespace }}
  labels:
    {{- include "straggler.labels" $root | nindent 4 }}
    app.kubernetes.io/component: rules
    {{- with $.options.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- $text := $root.Files.Get $path | replace "https://grafana.example" (trimSuffix "/" $root.Values.links.grafana) }}
  {{- $text | replace "https://runbooks.example/straggler" (trimSuffix "/" $root.Values.links.runbooks) | nindent 2 }}
{{- end }}
{{- end }}

{{/* A probe. Context: values, and the path to ask for. */}}
{{- define "straggler.probe" -}}
{{- $auto := ternary "tcp" "http" (not (empty .values.webConfigSecret)) -}}
{{- $scheme := ternary $auto .values.probes.scheme (eq .values.probes.scheme "auto") -}}
{{- if eq $scheme "tcp" -}}
tcpSocket:
  port: metrics
{{- else -}}
httpGet:
  path: {{ .path }}
  port: metrics
  scheme: {{ upper $scheme }}
{{- end }}
{{- end }}
